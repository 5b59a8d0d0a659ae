"""`ullage hooks`: hooks that tell Claude Code and Codex what to keep when they compact themselves.

It adds hooks to their settings and removes them, in the same way as the status line. It also
answers these hooks. `reminder` makes the answer.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ullage.cli import dotfiles, stations
from ullage.cli.lines import note
from ullage.cli.members import decode, is_same, parse, read_fields, remove_member, set_member
from ullage.core.errors import ConfigurationError, UllageError

SUMMARY = "have Claude Code and Codex keep your rules when they compact by themselves"

EPILOG: Final = """examples:
  ullage hooks --install claude      shows the change of settings.json, asks, keeps a backup
  ullage hooks --uninstall claude    the file is again what it was, to the byte
  ullage hooks --install codex       hooks.json; Codex asks you to trust it: /hooks

--run is what the hooks call: the event's JSON on stdin, the reminder on stdout. It takes 10 seconds
at most, and never fails: a client goes on as without it.
"""

KEY: Final = "hooks"
EVENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "claude": {"PreCompact": "", "SessionStart": "compact"},
    "codex": {"SessionStart": "compact"},
}
"""Events, each with its matcher. Codex 0.169 ignores the output of PreCompact's hooks."""

TIMEOUT_S: Final = 20
"""Seconds after which the client ends the hook."""

PATIENCE_S: Final = 10.0
"""Seconds after which the hook gives up by itself."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group(required=True)
    known = tuple(EVENTS)
    what.add_argument(
        "--install", choices=known, help="put them there: shows the change, asks, keeps a backup"
    )
    what.add_argument("--uninstall", choices=known, help="take them back, byte for byte")
    what.add_argument("--run", choices=known, help="answer an event of this program, on stdin")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(given: argparse.Namespace) -> int:
    """Install, uninstall, or answer an event."""
    if given.run is not None:
        return answer_event(given.run)
    where = dotfiles.name_program(given)
    called = dotfiles.command("hooks")

    def make(before: bytes | None, saved: bytes | None) -> bytes | None:
        if given.install is not None:
            return install(where, before, called)
        return uninstall(where, before, saved, called)

    code = dotfiles.change_file(given, find_path(where, os.environ), make, HOOKS)
    if code == 0 and given.install == "codex":
        note("Codex runs a new hook once you trust it: say /hooks there")
    return code


def find_path(where: str, environ: Mapping[str, str]) -> Path:
    """Return the file from which a program reads hooks."""
    if where == "claude":
        return dotfiles.find_path("claude", environ)
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    return Path(environ.get("CODEX_HOME") or home / ".codex") / "hooks.json"


# ── the new content of a file ───────────────────────────────────────────────────────────────────


def install(where: str, before: bytes | None, called: str) -> bytes:
    """Return the file with the hooks; raises ValueError if it cannot be changed.

    Claude Code gets the status line too, if it has none.
    """
    held = _read_hooks(before)
    merged = {name: list(_list_groups(held, name)) for name in held}
    for event, matcher in EVENTS[where].items():
        command = {"type": "command", "command": f"{called} --run {where}", "timeout": TIMEOUT_S}
        group = {"matcher": matcher, "hooks": [command]} if matcher else {"hooks": [command]}
        others = [each for each in _list_groups(held, event) if not is_ours(each)]
        merged[event] = [*others, group]
    made = set_member(before, KEY, merged, may_replace=lambda _: True, spread=True)
    if where == "claude" and dotfiles.KEY not in read_fields(before):
        made = dotfiles.install("claude", made, dotfiles.command())
    return made


def uninstall(where: str, before: bytes | None, saved: bytes | None, called: str) -> bytes | None:
    """Return the file without the hooks, or None to delete it.

    If nothing changed since, it is the original content, byte for byte.
    """
    if before is None or not is_installed(before):
        return before
    for was in (saved, None):
        try:
            if install(where, was, called) == before:
                return was
        except ValueError:
            continue
    left = _remove_hooks(before, saved)
    if where == "claude" and dotfiles.KEY not in read_fields(saved):
        left = dotfiles.remove_line(left, saved)
    return saved if saved is not None and is_same(left, saved) else left


def _remove_hooks(before: bytes, saved: bytes | None) -> bytes:
    held = _read_hooks(before)
    left = {}
    for event in held:
        groups = [each for each in _list_groups(held, event) if not is_ours(each)]
        if groups:
            left[event] = groups
    if left == read_fields(saved).get(KEY):
        return remove_member(before, KEY, saved)
    if left:
        return set_member(before, KEY, left, may_replace=lambda _: True, spread=True)
    return remove_member(before, KEY, None)


def is_ours(group: object) -> bool:
    """Tell whether a group of hooks is this program's."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    called = [one.get("command") for one in hooks or () if isinstance(one, dict)]
    return any(isinstance(c, str) and "ullage" in c and " hooks --run " in c for c in called)


def is_installed(data: bytes) -> bool:
    """Tell whether a file has the hooks."""
    held = read_fields(data).get(KEY)
    events = held.values() if isinstance(held, dict) else ()
    return any(is_ours(each) for groups in events if isinstance(groups, list) for each in groups)


HOOKS: Final = dotfiles.Installed("hooks", ".ullage-hooks-backup", is_installed)


def _read_hooks(before: bytes | None) -> Mapping[str, Any]:
    """Return the hooks of a file; raises ValueError if they are invalid."""
    text = decode(before or b"")
    held = parse(text, KEY).get(KEY, {}) if text.strip() else {}
    if not isinstance(held, dict):
        raise ValueError(f"its {KEY!r} is no object of JSON")  # noqa: TRY004 - the file is at fault
    return held


def _list_groups(held: Mapping[str, Any], event: str) -> list[Any]:
    groups = held.get(event, [])
    if not isinstance(groups, list):
        raise ValueError(f"its hooks of {event!r} are no list")  # noqa: TRY004 - the file is at fault
    return groups


# ── the answer of a hook ────────────────────────────────────────────────────────────────────────


def answer_event(where: str) -> int:
    """Print what to keep; the exit code is always 0, so that no client is held up.

    Exit code 2 would stop the compaction, and a failing hook may end the session.
    """
    said: list[str] = []
    work = threading.Thread(target=_answer, args=(where, said), daemon=True)
    work.start()
    work.join(PATIENCE_S)
    if said:
        sys.stdout.write(said[0])
        sys.stdout.flush()
    elif work.is_alive():
        note(f"ullage hooks: gave up after {PATIENCE_S:g} s")
    return 0


def _answer(where: str, said: list[str]) -> None:
    """Put the answer to the event on stdin into `said`; errors go to stderr."""
    from ullage.cli import reminder

    data = stations.read_stdin() or b""
    try:
        event = _read_event(data)
        text = reminder.remind(event["hook_event_name"], event["transcript_path"], where)
    except (UllageError, OSError) as error:
        note(f"ullage hooks: {error}")
        return
    if text:
        said.append(text)


def _read_event(data: bytes) -> dict[str, str]:
    """Return an event's name and transcript; raises ConfigurationError for an invalid event."""
    fields = read_fields(data)
    event = {name: fields.get(name) for name in ("hook_event_name", "transcript_path")}
    named = {name: value for name, value in event.items() if isinstance(value, str) and value}
    if len(named) < len(event):
        raise ConfigurationError(
            "stdin holds no event of a client: it is an object of JSON with hook_event_name and "
            "transcript_path"
        )
    return named
