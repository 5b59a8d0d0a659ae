"""`ullage replay-policy`: replay recorded sessions under several policies, and recommend one."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ullage
from ullage import config, replay
from ullage.cli import desk, glyphs, progress
from ullage.cli.face import find_replays
from ullage.core.compaction.policy import Policy, known_policies
from ullage.core.errors import ConfigurationError
from ullage.core.guard.warmth import LIFE_S
from ullage.importers import SAMPLE, SOURCES, latest
from ullage.importers.listing import list_sessions
from ullage.importers.places import SOURCES as PROGRAMS
from ullage.importers.places import describe_folders
from ullage.importers.session import plural
from ullage.replay.choice import SLACK
from ullage.replay.on_ray import drop_parts

if TYPE_CHECKING:
    from ullage.replay import PolicyChoice, PolicyComparison, ReplayTotals, SessionPlace

SUMMARY = "replay recorded sessions under several policies: cost, loss, and which one to take"

EPILOG = """Nothing is sent and no model is asked: the guard prepares each request of a session as
it would have been, priced with the provider's cache. Results are kept as they come: the same
command goes on where it was stopped. A policy is a preset ({}), a settings file with a policy
in it, or a preset with changes, such as ladder:tail_share=0.1,keep_last=6. See docs/replay.md."""

DEFAULTS: Final = ("ladder", "advisory", "auto_summary", "off")
"""The default policies to compare."""

FAULTS_SHOWN: Final = 5

NOWHERE: Final = Path("/nonexistent")
"""A project without settings, so that a named policy means the same everywhere."""

MOST: Final = 1_000_000
"""Most sessions of a program that are replayed."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG.format(", ".join(known_policies()))
    parser.add_argument(
        "sessions",
        nargs="*",
        metavar="SESSION",
        help="session files, folders, files with a conversation a line (else a made-up one)",
    )
    parser.add_argument(
        "--from",
        dest="program",
        choices=(*PROGRAMS, "ullage"),
        help="all sessions of a program on this machine",
    )
    parser.add_argument("--last", action="store_true", help="of --from, the newest session alone")
    desk.add_log(parser)
    parser.add_argument(
        "--source", choices=SOURCES, help="the program that wrote the files (else recognised)"
    )
    parser.add_argument(
        "--policy",
        dest="policies",
        action="append",
        metavar="POLICY",
        help=f"a policy to try, again for more ({', '.join(DEFAULTS)})",
    )
    parser.add_argument("--window", type=int, metavar="N", help="the model's window in tokens")
    parser.add_argument("--model", metavar="M", help="count and price as this model")
    parser.add_argument(
        "--cache-life",
        type=float,
        default=LIFE_S,
        metavar="S",
        help=f"seconds that the provider's cache lives ({LIFE_S:.0f})",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (one a core)")
    parser.add_argument(
        "--on", choices=("local", "ray"), default="local", help="ray: a cluster (ullage[ray])"
    )
    parser.add_argument("--out", metavar="PATH", help="results: a file, with --on ray a folder")
    parser.add_argument("--afresh", action="store_true", help="replay all sessions again")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--html", metavar="FILE", help="also write the comparison as a page")
    parser.add_argument(
        "--slack",
        type=float,
        default=SLACK,
        metavar="SHARE",
        help=f"how much more than the least loss the recommended policy may lose ({SLACK})",
    )
    parser.add_argument(
        "--write", metavar="FILE", help="write the recommended policy into a settings file"
    )


def run(given: argparse.Namespace) -> int:
    """Print the comparison; returns 1 if no session could be replayed."""
    policies = {label: read_policy(label) for label in given.policies or DEFAULTS}
    places = _find_places(given)
    options = replay.ReplayOptions(
        policies,
        window=given.window,
        model=given.model,
        cache_life_s=given.cache_life,
        source=given.source,
        settings=config.load().settings,
    )
    kept = _find_records(given, options, places)
    with progress.watch(f"replaying {plural(len(places), 'session')}") as bar:
        if given.on == "ray":
            if given.afresh:
                drop_parts(kept)
            found = replay.replay_on_ray(places, options, kept, workers=given.jobs, report=bar)
        else:
            found = _replay_here(places, options, kept, given, bar)
    choice = replay.recommend(found, given.slack) if _has_turns(found) else None
    if given.html is not None:
        from ullage.pages.policies import draw_alone

        _write_file(Path(given.html), draw_alone(found, choice))
    if given.write is not None and choice is not None:
        write_policy(Path(given.write), policies[choice.label])
    # last: if a file cannot be written, the error is the one document
    _print_found(found, choice, kept, as_json=given.json)
    return 0 if choice is not None else 1


def _replay_here(
    places: Sequence[SessionPlace],
    options: replay.ReplayOptions,
    kept: Path,
    given: argparse.Namespace,
    bar: progress.Bar,
) -> PolicyComparison:
    with replay.ReplayRecords(kept, options.name_run(), afresh=given.afresh) as records:
        return replay.replay_corpus(
            places,
            options,
            jobs=given.jobs,
            done=list(records.rows.values()),
            take=records.add,
            report=bar,
        )


def _find_places(given: argparse.Namespace) -> list[SessionPlace]:
    if given.program == "ullage":
        return replay.list_log(desk.store_url(given))
    if given.program is not None:
        if given.last:
            return replay.list_places([*given.sessions, latest(given.program)])
        listed, _ = list_sessions(given.program, os.environ, MOST)
        if not listed and not given.sessions:
            where = describe_folders(given.program, os.environ)
            raise ConfigurationError(f"no session of {given.program} was found in {where}")
        sizes = {one.path: one.size for one in listed}  # a session in a database has no file size
        found = replay.list_places([*given.sessions, *sizes])
        return [place._replace(size=sizes.get(place.name, place.size)) for place in found]
    if not given.sessions:
        desk.say("no session is named: this is a made-up one")
    return replay.list_places(given.sessions or [SAMPLE])


def _find_records(
    given: argparse.Namespace,
    options: replay.ReplayOptions,
    places: Sequence[SessionPlace],
) -> Path:
    """Return the place of the results: a file that the same command finds again."""
    if given.out is not None:
        return Path(given.out)
    if given.on == "local":  # its rows have the session sizes
        places = [place._replace(size=0) for place in places]
    what = [ullage.__version__, options.name_run(), given.on, sorted(places)]
    name = blake2b(json.dumps(what, default=str).encode(), digest_size=8).hexdigest()
    return find_replays() / (name if given.on == "ray" else f"{name}.jsonl")


def read_policy(text: str) -> Policy:
    """Return the policy for a word of the command line.

    Raises ConfigurationError for an unknown preset, an unreadable file, or a wrong change.
    """
    if text.endswith(".toml"):
        held = config.load({}, NOWHERE, named=Path(text)).settings.policy
        return Policy.read(held)
    name, _, changes = text.partition(":")
    if not changes:
        return Policy.from_name(name)
    wanted = [f"policy.preset={name}", *(f"policy.{one}" for one in changes.split(","))]
    with config.given_options(wanted):
        return Policy.read(config.load({}, NOWHERE).settings.policy)


def write_policy(path: Path, policy: Policy) -> None:
    """Write a policy at the end of a settings file, or into a new one.

    Raises ConfigurationError if the file has a policy already or cannot be written.
    """
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if before and "policy" in config.load({}, NOWHERE, named=path).tree:
        raise ConfigurationError(
            f"{path} has a policy already: take it out, or name another file for the new one"
        )
    text = replay.write_settings(policy)
    if before and text.startswith("policy ="):
        _write_file(path, f"{text}\n{before}")  # a key must precede all tables
    else:
        _write_file(path, f"{before}{chr(10) if before else ''}{text}")
    desk.say(f"{path}: the policy was written")


def _write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}; the finished results are kept, give "
            "another name to the same command"
        ) from error


def _has_turns(found: PolicyComparison) -> bool:
    return any(totals.turns for totals in found.totals.values())


def _print_found(
    found: PolicyComparison, choice: PolicyChoice | None, kept: Path, *, as_json: bool
) -> None:
    if as_json:
        told = found.to_dict() | {"recommended": None if choice is None else choice._asdict()}
        print(json.dumps(told, indent=2))
    else:
        for line in draw_table(found.totals):
            print(line)
    for place, fault in sorted(found.faults.items())[:FAULTS_SHOWN]:
        desk.say(f"{glyphs.clean(place)}: {glyphs.clean(fault)}")
    if len(found.faults) > FAULTS_SHOWN:
        desk.say(f"... and {len(found.faults) - FAULTS_SHOWN:,} more sessions without a result")
    if choice is not None and not as_json:
        print(f"recommended: {choice.label} ({choice.reason})")
    desk.say(f"results: {kept}")


def draw_table(held: Mapping[str, ReplayTotals]) -> Iterator[str]:
    """Yield the comparison in columns, one policy on each line."""
    rows = [HEADS, *(_list_cells(label, totals) for label, totals in held.items())]
    widths = [max(glyphs.cells(row[column]) for row in rows) for column in range(len(HEADS))]
    first = next(iter(held.values()), None)
    if first is not None:
        yield f"{plural(first.sessions, 'session')}, {plural(first.turns, 'turn')}"
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *cells])


HEADS: Final = (
    "policy", "refused", "compactions", "cost", "burden", "loss", "faults", "again", "carried",
    "cached", "rewritten", "own time",
)  # fmt: skip


def _list_cells(label: str, totals: ReplayTotals) -> tuple[str, ...]:
    carried = totals.carried_tokens
    return (
        label,
        f"{totals.refused:,}",
        f"{totals.compactions:,}",
        _write_dollars(totals.dollars),
        _write_dollars(totals.burden_dollars),
        "-" if totals.loss is None else f"{totals.loss:.1%}",
        _write_faults(totals),
        f"{totals.calls_again:,}",
        f"{carried / 1e6:,.1f}M",
        f"{totals.cached_tokens / carried:.0%}" if carried else "-",
        f"{totals.rewritten_tokens / 1e6:,.1f}M",
        f"{totals.own_ms / 1e3:,.1f} s",
    )


def _write_faults(totals: ReplayTotals) -> str:
    rate = totals.fault_rate
    return f"{totals.faults:,}" + ("" if rate is None else f" ({rate:.1%})")


def _write_dollars(value: Any) -> str:
    return "unknown" if value is None else f"${value:,.2f}"
