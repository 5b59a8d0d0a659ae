"""Settings files of other programs: shows a change, asks, keeps a backup, takes it back.

Claude Code's settings are JSON, of which one member is ours; the files of tmux and shells are
text, of which the lines between two marks are ours. All other bytes stay as they are. A file that
cannot be read as what it should be is refused, not repaired.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ullage.cli.lines import block, is_terminal, note, out
from ullage.cli.marks import BEGIN, add_block, remove_block
from ullage.core.errors import ConfigurationError

BACKUP: Final = ".ullage-backup"
KEY: Final = "statusLine"
NAME: Final = "__ullage_line"

BLOCKS: Final[Mapping[str, str]] = {
    # Parsed again, it is not added again: the condition is tmux's own (2.4 and newer).
    "tmux": """\
%if #{{?#{{m:*statusline*,#{{status-right}}}},0,1}}
set -g status-right-length 120
set -ag status-right " #({command} --in tmux --width 80 --cwd #{{q:pane_current_path}})"
%endif
""",
    "bash": f"""\
{NAME}() {{{{ {{command}} --in bash --quiet --width 60; }}}}
[[ $PS1 == *{NAME}* ]] || PS1='$({NAME})'"$PS1"
""",
    "zsh": f"""\
{NAME}() {{{{ {{command}} --in zsh --quiet --width 60 }}}}
setopt PROMPT_SUBST
[[ $RPROMPT == *{NAME}* ]] || RPROMPT='$({NAME})'"$RPROMPT"
""",
    "fish": f"""\
if status is-interactive; and not functions -q {NAME}_before
    functions -q fish_right_prompt; and functions -c fish_right_prompt {NAME}_before
    or function {NAME}_before; end
    function fish_right_prompt
        {{command}} --in fish --quiet --width 60
        {NAME}_before
    end
end
""",
}
"""What is put into each file; `command` is how this program is called."""


class FilePatch(NamedTuple):
    """What a file holds and is to hold; None where there is none. `saved` is its backup."""

    path: Path
    before: bytes | None
    after: bytes | None
    saved: bytes | None


def run(given: argparse.Namespace) -> int:
    """Install or take back; the exit code is 0 where the file is as was asked."""
    if given.install is not None and given.uninstall is not None:
        raise ConfigurationError("give --install or --uninstall, not both")
    where = given.install or given.uninstall
    path = find_path(where, os.environ)
    before, saved = _read(path), _read(_name_backup(path))
    try:
        if given.install is not None:
            after: bytes | None = install(where, before, command(), force=given.force)
        else:
            after = uninstall(where, before, saved, command())
    except ValueError as error:
        raise ConfigurationError(f"{path} is left as it is: {error}") from error
    change = FilePatch(path, before, after, saved)
    if after == before:
        state = "is installed" if given.install is not None else "is not installed"
        note(f"nothing to do: the status line {state} in {path}")
        return 0
    out(show_change(change).rstrip("\n"))
    if not (given.yes or _agree(path)):
        note("nothing was changed")
        return 1
    _write(change, keep=given.install is not None)
    return 0


def command() -> str:
    """Return how this program is called, in words of a shell: by path, since PATH may differ.

    It runs in folders of strangers: no module is to be loaded from there (`-P`).
    """
    beside = Path(sys.executable).with_name("ullage")
    script = str(beside) if beside.exists() else shutil.which("ullage")
    words = [script] if script else [sys.executable, "-P", "-m", "ullage"]
    return shlex.join([*words, "statusline"])


def find_path(where: str, environ: Mapping[str, str]) -> Path:
    """Return the settings file of a program."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if where == "claude":
        named = environ.get("CLAUDE_CONFIG_DIR", "").split(",")[0].strip()
        return (Path(named).expanduser() if named else home / ".claude") / "settings.json"
    if where == "tmux":
        plain, other = home / ".tmux.conf", config / "tmux" / "tmux.conf"
        return other if other.exists() and not plain.exists() else plain
    if where == "fish":
        return config / "fish" / "config.fish"
    return Path(environ.get("ZDOTDIR") or home) / ".zshrc" if where == "zsh" else home / ".bashrc"


# ── what a file is to hold ──────────────────────────────────────────────────────────────────────


def install(where: str, before: bytes | None, called: str, *, force: bool = False) -> bytes:
    """Return the file with the status line; raises ValueError for what cannot be changed."""
    if where == "claude":
        value = {"type": "command", "command": f"{called} --in claude"}
        return _set_member(before, value, force=force)
    return add_block(before or b"", BLOCKS[where].format(command=called))


def uninstall(where: str, before: bytes | None, saved: bytes | None, called: str) -> bytes | None:
    """Return the file without the status line, None where it is to go.

    Where nothing changed since, it is what stood there before, to the byte.
    """
    if before is None:
        return None
    for was in (saved, None):
        try:
            if install(where, was, called, force=True) == before:
                return was
        except ValueError:
            continue
    if where == "claude":
        left = _remove_member(before, saved)
        return saved if saved is not None and _is_same(left, saved) else left
    return remove_block(before)


# ── one member of a JSON file ───────────────────────────────────────────────────────────────────


def _set_member(before: bytes | None, value: Mapping[str, str], *, force: bool) -> bytes:
    text = _decode(before or b"")
    end = "\r\n" if "\r\n" in text else "\n"
    if not text.strip():
        return (json.dumps({KEY: value}, indent=2) + "\n").encode()
    fields = _parse(text)
    written = json.dumps(value)
    held = _find_member(text)
    if held is not None:
        if not (force or is_ours(fields[KEY])):
            shown = json.dumps(fields[KEY])
            raise ValueError(f"it has another status line, {shown}: --force replaces it")
        start, stop = held
        made = text if fields[KEY] == value else text[:start] + written + text[stop:]
    else:
        made = _append_member(text, written, end, empty=not fields)
    if json.loads(made) != {**fields, KEY: value}:
        raise ValueError("its JSON has a form that cannot be changed in one place")
    return made.encode()


def _append_member(text: str, written: str, end: str, *, empty: bool) -> str:
    """Return an object with one member more, behind the others and indented as the first one."""
    close = text.rstrip().rindex("}")
    body = text[:close].rstrip()
    first = text[text.index("{") + 1 :].lstrip(" \t")
    indent = "  "
    if first.startswith(("\n", "\r\n")) and not empty:
        line = first.lstrip("\r\n")
        indent = line[: len(line) - len(line.lstrip(" \t"))]
    comma = "" if empty else ","
    return f'{body}{comma}{end}{indent}"{KEY}": {written}{end}{text[close:]}'


def _remove_member(before: bytes, saved: bytes | None) -> bytes:
    """Return the file without our member, or with the one that stood there before."""
    text = _decode(before)
    if not text.strip():
        return before
    fields = _parse(text)
    held = _find_member(text)
    if held is None or not is_ours(fields[KEY]):
        return before
    start, stop = held
    old = _find_saved(saved)
    if old is not None:
        return (text[:start] + old + text[stop:]).encode()
    head = text[: text.rindex(f'"{KEY}"', 0, start)].rstrip()
    tail = text[stop:]
    if head.endswith(","):
        made = head[:-1] + tail
    else:
        rest = tail.lstrip()
        made = head + (tail[tail.index(",") + 1 :] if rest.startswith(",") else tail)
    if json.loads(made) != {name: value for name, value in fields.items() if name != KEY}:
        raise ValueError(f"the member {KEY!r} cannot be taken out in one place")
    return made.encode()


def _is_same(one: bytes, other: bytes) -> bool:
    """Tell whether two files say the same, however they are written."""
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _find_saved(saved: bytes | None) -> str | None:
    """Return the status line of the backup as it was written, None where it had none."""
    text = _decode(saved or b"")
    held = _find_member(text) if text.strip() else None
    return text[held[0] : held[1]] if held is not None else None


def is_ours(value: object) -> bool:
    """Tell whether a status line is this program's."""
    called = value.get("command") if isinstance(value, dict) else None
    return isinstance(called, str) and "ullage" in called and " statusline" in called


def _find_member(text: str) -> tuple[int, int] | None:
    """Return where the value of the member stands in the top-level object, the last one counts."""
    read = json.JSONDecoder().raw_decode
    found = None
    place = _skip(text, text.index("{") + 1)
    while text[place] == '"':
        name, place = read(text, place)
        start = _skip(text, _skip(text, place) + 1)
        _, stop = read(text, start)
        if name == KEY:
            found = (start, stop)
        place = _skip(text, stop)
        if text[place] == ",":
            place = _skip(text, place + 1)
    return found


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _parse(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"it is no plain JSON ({error}); comments and trailing commas are none. Put "
            f'"{KEY}": {{"type": "command", "command": "ullage statusline"}} there by hand'
        ) from error
    if not isinstance(fields, dict):
        raise ValueError("it is no object of JSON")  # noqa: TRY004 - the file is at fault
    return fields


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 ({error})") from error


# ── showing, asking, writing ────────────────────────────────────────────────────────────────────


def show_change(change: FilePatch) -> str:
    """Return the change as a unified diff, with nothing in it that steers a terminal."""
    old, new = (_list_lines(data) for data in (change.before, change.after))
    here = str(change.path)
    was, now = (os.devnull if data is None else here for data in (change.before, change.after))
    return "\n".join(block("".join(difflib.unified_diff(old, new, was, now)))) + "\n"


def _list_lines(data: bytes | None) -> list[str]:
    text = (data or b"").decode("utf-8", "replace")
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []


def _agree(path: Path) -> bool:
    if not is_terminal(sys.stdin):
        note("nobody is there to ask: --yes changes it")
        return False
    try:
        answer = input(f"Change {path}? [y/N] ")
    except (EOFError, KeyboardInterrupt):
        return False
    return answer.strip().lower() in ("y", "yes")


def _name_backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def _write(change: FilePatch, *, keep: bool) -> None:
    """Write the file, or remove it; a first backup is kept until the change is taken back."""
    backup = _name_backup(change.path)
    try:
        if keep and change.before is not None and not _is_installed(change.before):
            _replace(backup, change.before, like=change.path)
        if change.after is None:
            change.path.unlink()
        else:
            _replace(change.path, change.after, like=change.path)
        if not keep:
            backup.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{change.path} cannot be written: {error}") from error
    said = f"wrote {change.path}" if change.after is not None else f"removed {change.path}"
    kept = keep and backup.exists()
    note(f"{said}; what it held is in {backup}" if kept else said)


def _is_installed(data: bytes) -> bool:
    """Tell whether a file has the status line already: its backup is older, and stays."""
    if BEGIN.encode() in data:
        return True
    try:
        fields = json.loads(data)
    except ValueError:
        return False
    return isinstance(fields, dict) and is_ours(fields.get(KEY))


def _replace(path: Path, data: bytes, *, like: Path) -> None:
    """Write a file whole, where a link leads, with the mode that the file had."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = like.stat().st_mode & 0o7777 if like.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
