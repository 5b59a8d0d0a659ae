"""`ullage show`: a session for people to read, up to any event, or its raw events."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ullage.agent import totals
from ullage.agent.overview import Overview
from ullage.cli import desk, lines
from ullage.cli.events import SessionEvents, print_lines
from ullage.cli.sessions import alive
from ullage.core.session.log.event import HEAD, Event, upcast_data
from ullage.core.session.log.fold import fold
from ullage.core.summary.flaws import name_strategies

SUMMARY = "show a session as people read it, up to any of its events"

MOST: Final = 12
"""Lines of a result that are shown."""

WIDTH: Final = 160
"""Cells of a call's arguments, and of reasoning."""

Data = Mapping[str, Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", nargs="?", help="its name, or how it begins (else the newest)")
    add_at(parser)
    parser.add_argument("--full", action="store_true", help="results and calls whole")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument(
        "--events", action="store_true", help="print the events, a line each, as NDJSON"
    )
    desk.add_log(parser)


def add_at(parser: argparse.ArgumentParser) -> None:
    """Declare the option for the last event to read."""
    parser.add_argument("--at", type=int, metavar="N", help="only events up to N")


def run(given: argparse.Namespace) -> int:
    """Print the session."""
    with desk.lend_log(given) as log:
        events = SessionEvents(desk.find_session(log, given.session), given.at)
        writer = alive(log, events.session.name)
        if given.events:
            print_lines(events)
        elif given.json:
            print(json.dumps(document(events), indent=2))
        else:
            for line in SessionPage(full=given.full).draw_events(events):
                lines.out(line)
            _close(events.overview, events.session.name, writer)
    return 0


def document(events: SessionEvents) -> dict[str, Any]:
    """Return events as one value, with their data unchanged."""
    held, found = fold(events), events.overview
    return {
        "session": held.session,
        "at": held.head,
        "forked_from": dict(held.forked) or None,
        "parent": held.created.get("parent"),
        "children": found.children,
        "turn": None if held.turn is None else held.turn.turn,
        "totals": found.sums.total().to_dict(),
        "events": [{**{n: getattr(e, n) for n in HEAD}, "data": e.data} for e in events],
    }


def _close(found: Overview, session: str, writer: str | None) -> None:
    """Report the sums, and an unfinished turn."""
    sums = found.sums.total()
    if sums.requests:
        desk.say(sums.describe())
    if found.turn is None:
        return
    if writer is not None:
        desk.say(f"a turn is under way, by {writer}")
    else:
        desk.say(f"the turn has no end: ullage resume {session} goes on with it")


@dataclass(slots=True)
class SessionPage:
    """Draws events one after the other; it remembers the names of open calls."""

    full: bool = False
    _names: dict[str, str] = field(default_factory=dict)

    def draw_events(self, events: Iterable[Event]) -> Iterator[str]:
        """Yield the lines of a session."""
        for number, event in enumerate(events):
            if number == 0:
                begun = lines.when(event.ts)
                yield f"session {lines.brief(event.session_id, WIDTH)}, begun {begun}"
            data = upcast_data(event)
            if data is None:
                known = f"{event.type} of version {event.v}"
                yield f"#{event.seq:<4} {lines.brief(known, WIDTH)}: not known to this ullage"
                continue
            way = _WAYS.get(event.type)
            drawn = [] if way is None else way(self, data)
            margins = (f"#{event.seq:<4} ", *["      "] * len(drawn))
            yield from map("".join, zip(margins, drawn, strict=False))

    def name(self, call_id: str, name: str) -> None:
        """Remember a call's name for its result and its decision."""
        self._names[call_id] = name

    def find_call_name(self, call_id: str) -> str:
        """Return the name of a call, or its id if it is unknown."""
        return self._names.get(call_id, call_id)

    def short(self, text: str) -> str:
        """Return text on one line, shortened unless the full text is wanted."""
        return lines.brief(text, len(text) + WIDTH if self.full else WIDTH)


def _draw_message(page: SessionPage, data: Data) -> list[str]:
    del page
    parts = data.get("parts") or ()
    kinds = ", ".join(str(part.get("type", "?")) for part in parts)
    more = [lines.brief(f"+ {kinds}", WIDTH)] if kinds else []
    return ["you", *lines.block(data["text"]), *more]


def _draw_answer(page: SessionPage, data: Data) -> list[str]:
    del page
    partial = ", as far as it came (never sent again)" if data.get("partial") is True else ""
    return [f"{lines.brief(data['model'], WIDTH)}{partial}", *lines.block(data["text"])]


def _draw_reasoning(page: SessionPage, data: Data) -> list[str]:
    block = data.get("block")
    held: Data = block if isinstance(block, Mapping) else {}
    names = ("thinking", "reasoning_content", "reasoning", "text")
    text = next((held[name] for name in names if isinstance(held.get(name), str)), "")
    return [f"thought: {page.short(text)}" if text else "thought, not readable"]


def _draw_call(page: SessionPage, data: Data) -> list[str]:
    page.name(data["call_id"], data["name"])
    return [f"call {lines.brief(data['name'], WIDTH)} {page.short(data['arguments'])}"]


def _draw_result(page: SessionPage, data: Data) -> list[str]:
    code = data.get("exit_code")
    marks = data.get("marks")
    said = [
        *(["error"] if data.get("is_error") is True else []),
        *([f"exit code {code}"] if code is not None else []),
        *(str(mark) for mark in (marks if isinstance(marks, Mapping) else ())),
    ]
    title = " ".join(["result", page.find_call_name(data["call_id"])])
    noted = f" ({', '.join(said)})" if said else ""
    most = None if page.full else MOST
    return [lines.brief(title + noted, WIDTH), *lines.block(data["text"], most)]


def _draw_decision(page: SessionPage, data: Data) -> list[str]:
    reason = f": {data['reason']}" if data.get("reason") else ""
    by = f" (by {data['by']})" if data.get("by") else ""
    answer = [str(data[name]) for name in ("scope", "pattern", "said") if data.get(name)]
    told = f"; a person answered: {', '.join(answer)}" if answer else ""
    said = f"{data['decision']} {page.find_call_name(data['call_id'])}{by}{reason}{told}"
    return [lines.brief(said, 2 * WIDTH)]


def _draw_compaction(page: SessionPage, data: Data) -> list[str]:
    del page
    made = data["checkpoint"]
    sizes = [made.get(name) for name in ("tokens_before", "tokens_after")]
    told = " -> ".join(f"{n:,}" if type(n) is int else "?" for n in sizes)
    span = data.get("events")
    over = f", events {span[0]} to {span[1]}" if isinstance(span, list) and len(span) == 2 else ""
    how = name_strategies(str(made.get("strategy")), made.get("fallback_reason"))
    verb = "a compaction was undone" if data.get("undone") is True else "compacted"
    if data.get("measured") is True:
        verb = f"the compaction was measured at {made.get('tokens_after_measured'):,}"
    said = f"{verb}: {told} tokens ({how}, {made.get('trigger')}){over}"
    return [lines.brief(said, WIDTH)]


def _draw_usage(page: SessionPage, data: Data) -> list[str]:
    del page
    return [lines.brief(totals.describe_report(data), WIDTH)]


def _draw_start(page: SessionPage, data: Data) -> list[str]:
    del page
    mode, permission = data.get("mode", "build"), data.get("permission", "auto")
    posture = [
        *([str(mode)] if mode != "build" else []),
        *([str(permission)] if permission != "auto" else []),
        *(["dry run"] if data.get("dry_run") is True else []),
    ]
    return [lines.brief(f"turn: {', '.join(posture)}", WIDTH)] if posture else []


def _draw_completion(page: SessionPage, data: Data) -> list[str]:
    del page
    return ["the answer ends at its limit of tokens"] if data.get("stop") == "length" else []


def _draw_failure(page: SessionPage, data: Data) -> list[str]:
    del page
    commands = data.get("commands")
    error = str(data.get("error") or "")
    return [
        lines.brief(f"the turn failed: {data['reason']}", WIDTH),
        *(lines.block(error) if error else ()),
        *(lines.brief(str(c), WIDTH) for c in (commands if isinstance(commands, list) else ())),
    ]


def _draw_interruption(page: SessionPage, data: Data) -> list[str]:
    del page, data
    return ["the turn was interrupted"]


def _draw_fork(page: SessionPage, data: Data) -> list[str]:
    del page
    told = f"forked here from session {data['parent']}, at its event {data['seq']}"
    return [lines.brief(told, 2 * WIDTH)]


def _draw_branch(page: SessionPage, data: Data) -> list[str]:
    del page
    parent = f" of session {data['parent']}" if data.get("parent") else ""
    return [lines.brief(f"summary{parent}", WIDTH), *lines.block(data["text"])]


def _draw_skill(page: SessionPage, data: Data) -> list[str]:
    del page
    return [lines.brief(f"skill {data['name']} ({data['hash']})", WIDTH)]


def _draw_pin(page: SessionPage, data: Data) -> list[str]:
    del page
    verb = "pinned no more" if data.get("pinned") is False else "pinned"
    return [f"#{data['seq']} is {verb}"]


def _draw_changes(page: SessionPage, data: Data) -> list[str]:
    del page
    paths = [str(file.get("path")) for file in data["files"]]
    return [lines.brief(f"files changed: {', '.join(paths)}", 2 * WIDTH)] if paths else []


def _describe_restored(page: SessionPage, data: Data) -> list[str]:
    del page
    files = [f"{file.get('did')} {file.get('path')}" for file in data["files"]]
    left = [f"left {file.get('path')}: {file.get('why')}" for file in data.get("left") or ()]
    return ["files brought back", *(lines.brief(text, 2 * WIDTH) for text in (*files, *left))]


def _draw_link(page: SessionPage, data: Data) -> list[str]:
    """Draw the record of another session that this one began."""
    child = data.get("child")
    if child is None:
        if data.get("continued_in"):
            return [lines.brief(f"continued in session {data['continued_in']}", WIDTH)]
        return [f"subagent: {page.short(json.dumps(data, ensure_ascii=False))}"]
    if "outcome" not in data:
        return [page.short(f"subagent in session {child}: {data.get('task', '')}")]
    used = data.get("usage")
    tokens = sum(n for n in used.values() if type(n) is int) if isinstance(used, Mapping) else 0
    price = f", ${data['dollars']:,.4f}" if isinstance(data.get("dollars"), float) else ""
    end = " ".join(str(data[name]) for name in ("outcome", "reason") if data.get(name))
    return [lines.brief(f"subagent in session {child}: {end}, {tokens:,} tokens{price}", WIDTH)]


def _draw_creation(page: SessionPage, data: Data) -> list[str]:
    del page
    parent = data.get("parent")
    return [lines.brief(f"a subagent of session {parent}", WIDTH)] if parent else []


def _draw_erased(page: SessionPage, data: Data) -> list[str]:
    del page
    return [lines.brief(f"{data['type']}, erased", WIDTH)]


def _draw_purged(page: SessionPage, data: Data) -> list[str]:
    del page
    return [f"the text of all {data['events']:,} events was erased"]


_WAYS: Final[Mapping[str, Callable[[SessionPage, Data], list[str]]]] = MappingProxyType(
    {
        "user_message": _draw_message,
        "assistant_message": _draw_answer,
        "reasoning": _draw_reasoning,
        "tool_call": _draw_call,
        "tool_result": _draw_result,
        "permission_decision": _draw_decision,
        "provider_usage": _draw_usage,
        "history_compaction": _draw_compaction,
        "turn_started": _draw_start,
        "turn_completed": _draw_completion,
        "turn_failed": _draw_failure,
        "turn_interrupted": _draw_interruption,
        "file_changes": _draw_changes,
        "files_restored": _describe_restored,
        "session_fork": _draw_fork,
        "branch_summary": _draw_branch,
        "skill_activation": _draw_skill,
        "message_pinned": _draw_pin,
        "subagent_event": _draw_link,
        "session_created": _draw_creation,
        "event_erased": _draw_erased,
        "session_purged": _draw_purged,
    }
)
"""Drawing functions for each type: a title, then lines below it; no lines for types that people
need not see."""
