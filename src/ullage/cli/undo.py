"""`ullage undo`: restore the files that a turn of a session changed."""

from __future__ import annotations

import argparse

from ullage.agent import Session
from ullage.agent.files import FORCED, Undone
from ullage.cli import desk, lines

SUMMARY = "bring back the files that the last turn of a session changed; again, one turn further"

EPILOG = """Files that were changed since then are left and listed (exit code 1); --force brings
them back, too. Which files are kept, and the limits for commands: docs/agent.md."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument("session", help="its name, or how it begins")
    parser.add_argument("--turn", type=int, metavar="N", help="the changes of turn N alone")
    parser.add_argument(
        "--force", action="store_true", help="also bring back files that were changed since then"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Print one line for each file; exit code 1 if a file was left as it is."""
    with desk.lend_log(given) as log, desk.find_session(log, given.session) as session:
        done = session.undo_files(given.turn, force=given.force, dry_run=given.dry_run)
    if done is None:
        desk.say(f"nothing to undo: no turn of session {session.name} has changed a file since")
        name_parent(session)
        return 0
    for line in draw_undone(done, dry=given.dry_run):
        lines.out(line)
    return 1 if done.left else 0


def name_parent(session: Session) -> None:
    """Say where the earlier turns are, if the session continues another one."""
    before = session.known.created.get("continues")
    if before:
        desk.say(f"it goes on from session {before}: ullage undo {before} undoes its turns")


def draw_undone(done: Undone, *, dry: bool = False) -> list[str]:
    """Return the result, one line for each file, with the skipped files and the reasons."""
    would = "would be " if dry else ""
    where = lines.brief(done.workspace, 400)
    told = [
        f"turn {done.number}: {len(done.files):,} brought back, {len(done.left):,} left, in {where}"
    ]
    told += [f"  {would}{did}  {lines.brief(path, 400)}" for path, did in done.files]
    told += [
        f"  left  {lines.brief(path, 400)}: {lines.brief(why, 400)}" for path, why in done.left
    ]
    if not dry and any(why in FORCED for _, why in done.left):
        told.append(
            "  --force (in a chat: /undo force) also brings back changed files, if they were kept"
        )
    return told
