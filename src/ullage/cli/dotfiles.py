"""Settings files of other programs: shows a change, asks, keeps a backup, reverts it.

Claude Code's settings are JSON with one member of ours; the files of tmux and shells are text with
our lines between two marks. All other bytes stay as they are. A file with invalid content is
refused, not repaired.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ullage.cli.lines import block, is_terminal, note, out
from ullage.cli.marks import BEGIN, add_block, remove_block
from ullage.cli.members import decode, is_same, parse, read_fields, remove_member, set_member
from ullage.core.errors import ConfigurationError

BACKUP: Final = ".ullage-backup"
KEY: Final = "statusLine"
NAME: Final = "__ullage_line"

BLOCKS: Final[Mapping[str, str]] = {
    # Reading it twice does not add it twice: the condition is tmux's own (2.4 and newer).
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
"""The block for each file; `command` is the command line of this program."""


class FilePatch(NamedTuple):
    """The content of a file before and after, None for no file. `saved` is its backup."""

    path: Path
    before: bytes | None
    after: bytes | None
    saved: bytes | None


def run(given: argparse.Namespace) -> int:
    """Install or uninstall; the exit code is 0 if the file is as requested."""
    where = name_program(given)
    called = command()

    def make(before: bytes | None, saved: bytes | None) -> bytes | None:
        if given.install is not None:
            return install(where, before, called, force=given.force)
        return uninstall(where, before, saved, called)

    return change_file(given, find_path(where, os.environ), make, LINE)


class Installed(NamedTuple):
    """An installed part of a file: its name for people, the suffix of its backup, and its check.

    `is_there` tells whether a file has it already: then its backup is older, and stays.
    """

    name: str
    backup: str
    is_there: Callable[[bytes], bool]


def name_program(given: argparse.Namespace) -> str:
    """Return the named program; raises ConfigurationError for two."""
    if given.install is not None and given.uninstall is not None:
        raise ConfigurationError("give --install or --uninstall, not both")
    return str(given.install or given.uninstall)


def change_file(
    given: argparse.Namespace,
    path: Path,
    make: Callable[[bytes | None, bytes | None], bytes | None],
    kind: Installed,
) -> int:
    """Show what `make` makes of a file and its backup, ask, write it; return the exit code.

    `make` returns None to delete the file, and raises ValueError for one it cannot change.
    """
    saved_at = path.with_name(path.name + kind.backup)
    before, saved = _read(path), _read(saved_at)
    try:
        after = make(before, saved)
    except ValueError as error:
        raise ConfigurationError(f"{path} is left as it is: {error}") from error
    change = FilePatch(path, before, after, saved)
    installs = given.install is not None
    if after == before:
        state = "installed" if installs else "not installed"
        note(f"nothing to do: {kind.name} {state} in {path}")
        return 0
    out(show_change(change).rstrip("\n"))
    if not (given.yes or _agree(path)):
        note("nothing was changed")
        return 1
    _write(change, saved_at, kind, keep=installs)
    return 0


def command(name: str = "statusline") -> str:
    """Return the command line of this program, by path, since PATH may differ.

    It runs in folders of strangers, so no module may be loaded from there (`-P`).
    """
    beside = Path(sys.executable).with_name("ullage")
    script = str(beside) if beside.exists() else shutil.which("ullage")
    words = [script] if script else [sys.executable, "-P", "-m", "ullage"]
    return shlex.join([*words, name])


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


# ── the new content of a file ───────────────────────────────────────────────────────────────────


def install(where: str, before: bytes | None, called: str, *, force: bool = False) -> bytes:
    """Return the file with the status line; raises ValueError if it cannot be changed."""
    if where == "claude":
        return _set_line(before, called, force=force)
    return add_block(before or b"", BLOCKS[where].format(command=called))


def uninstall(where: str, before: bytes | None, saved: bytes | None, called: str) -> bytes | None:
    """Return the file without the status line, or None to delete it.

    If nothing changed since, it is the original content, byte for byte.
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
        left = remove_line(before, saved)
        return saved if saved is not None and is_same(left, saved) else left
    return remove_block(before)


# ── one member of a JSON file ───────────────────────────────────────────────────────────────────


def _set_line(before: bytes | None, called: str, *, force: bool) -> bytes:
    value = {"type": "command", "command": f"{called} --in claude"}
    return set_member(before, KEY, value, may_replace=lambda held: force or is_ours(held))


def remove_line(before: bytes, saved: bytes | None) -> bytes:
    """Return the file without our member, or with the original one."""
    if before.strip() and not is_ours(parse(decode(before), KEY).get(KEY)):
        return before
    return remove_member(before, KEY, saved)


def is_ours(value: object) -> bool:
    """Tell whether a status line is this program's."""
    called = value.get("command") if isinstance(value, dict) else None
    return isinstance(called, str) and "ullage" in called and " statusline" in called


# ── showing, asking, writing ────────────────────────────────────────────────────────────────────


def show_change(change: FilePatch) -> str:
    """Return the change as a unified diff without control characters."""
    old, new = (_list_lines(data) for data in (change.before, change.after))
    here = str(change.path)
    was, now = (os.devnull if data is None else here for data in (change.before, change.after))
    return "\n".join(block("".join(difflib.unified_diff(old, new, was, now)))) + "\n"


def _list_lines(data: bytes | None) -> list[str]:
    text = (data or b"").decode("utf-8", "replace")
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []


def _agree(path: Path) -> bool:
    if not is_terminal(sys.stdin):
        note("no terminal to ask on: --yes changes it")
        return False
    try:
        answer = input(f"Change {path}? [y/N] ")
    except (EOFError, KeyboardInterrupt):
        return False
    return answer.strip().lower() in ("y", "yes")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def _write(change: FilePatch, backup: Path, kind: Installed, *, keep: bool) -> None:
    """Write or remove the file; the first backup stays until the change is reverted."""
    try:
        if keep and change.before is not None and not kind.is_there(change.before):
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
    """Tell whether a file has the status line already: then its backup is older, and stays."""
    return BEGIN.encode() in data or is_ours(read_fields(data).get(KEY))


LINE: Final = Installed("the status line is", BACKUP, _is_installed)


def _replace(path: Path, data: bytes, *, like: Path) -> None:
    """Write a file whole, through a link, with the mode that the file had."""
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
