"""ullage's own sessions, and the proxy's conversations, for the context view.

A session's request is the one that would go to its model now. The proxy keeps sizes and hashes, so
its conversations have numbers and no text. The module draws nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ullage import agent
from ullage.api.context import Contents, compaction_point, of_session
from ullage.cli import desk, replay, sessions
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import upcast_data
from ullage.core.summary.flaws import name_strategies
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.composition import PartRow, Report
from ullage.core.tokens.counting import Count
from ullage.core.tokens.gauge import assess
from ullage.core.tokens.window import resolve
from ullage.embedded import catalog
from ullage.importers import ImportedSession
from ullage.importers.listing import ListedSession
from ullage.importers.session import PaidCall, total
from ullage.importers.titles import line
from ullage.runtime import Runtime, default
from ullage.storage import open_store, place
from ullage.storage.log import EventLog
from ullage.transport import HttpRequest
from ullage.windows import Question, read_window

SOURCES: Final = ("ullage", "proxy")

PROXY: Final = "http://127.0.0.1:8790"
BASES: Final = ("provider", "server", "exact", "calibrated", "estimate")

USAGES: Final = tuple(Usage.__slots__)


@dataclass(frozen=True, slots=True)
class ShownWindow:
    """The operator's values for the window and the answer, by the names of the arguments."""

    model: str | None = None
    window: int | None = None
    reserved: int | None = None
    top: int = 10


def read_session(asked: argparse.Namespace, shown: ShownWindow) -> Contents:
    """Return the parts of a session's window: the newest session of ullage, or the named one."""
    chosen = argparse.ArgumentParser()
    replay.arguments(chosen)
    store = [] if asked.store is None else ["--store", asked.store]
    model = [] if shown.model is None else ["--model", shown.model]
    name = [] if asked.session is None else [asked.session]
    options = chosen.parse_args([*name, *store, *model])
    with replay.lend_view(options, as_it_is=True) as (session, lent, view):
        provider = lent.provider
        question = Question(provider.model, provider.base_url, provider.api_key)
        windows, sent = lent.runtime.windows, dict(view.kwargs)
        recorded = Claim("total", lent.window or 0, "probe", "the server when the session was kept")
        found = resolve([recorded]) if lent.window is not None else windows.window(question)
        owner = windows.listings.provider_for(provider.base_url)
        read = ImportedSession(
            source="ullage",
            dialect=provider.dialect,
            messages=tuple(sent.get("input") or sent["messages"]),
            system=sent.get("system", sent.get("instructions")),
            tools=tuple(sent.get("tools") or ()),
            max_tokens=view.prepared.max_tokens,
            model=provider.model,
            id=session.name,
            path=session.log.url,
            providers=() if owner is None else (owner,),
            dropped=_find_dropped(lent.runtime, question),
            **_history(session),
        )
        return of_session(
            read,
            window=shown.window or found,
            reserved=shown.reserved,
            top=shown.top,
            runtime=lent.runtime,
        )


def _find_dropped(runtime: Runtime, question: Question) -> frozenset[str]:
    """Return the rows that the model's template drops, by its server, else by the table."""
    told = runtime.dropped_rows(question)
    row = catalog.ROWS.get(question.model or "")
    return told if told is not None else frozenset(row.dropped if row is not None else ())


def _history(session: agent.Session) -> dict[str, Any]:
    """Return the recorded facts: first message, models, times, usage."""
    events = session.events()
    calls = []
    for event in events:
        data = upcast_data(event) if event.type == "provider_usage" else None
        if data is not None:
            told = [tokens for name in USAGES if type(tokens := data.get(name)) is int]
            whole = len(told) == len(USAGES)
            calls.append(PaidCall(Usage(*told) if whole else None, data.get("model")))
    said = (upcast_data(event) or {} for event in events if event.type == "user_message")
    first = next((data.get("text") for data in said if data.get("text")), None)
    workspace = session.fold.served.get("workspace")
    return {
        "calls": tuple(calls),
        "spent": total([call.usage for call in calls if call.usage is not None]),
        "title": line(first) if isinstance(first, str) else None,
        "project": workspace if isinstance(workspace, str) else None,
        "at": _time(events[-1].ts) if events else None,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def list_sessions(asked: argparse.Namespace, most: int) -> tuple[list[ListedSession], int]:
    """Return the newest sessions of the log, and the number of all."""
    with desk.lend_log(asked) as log:
        heads = log.sessions()[::-1]
        overviews = desk.open_overviews(log)
        rows = [sessions.read(log, head, overviews) for head in heads[:most]]
        made = [
            ListedSession(row.name, log.url, row.last, _workspace(log, row), row.about or None)
            for row in rows
        ]
        overviews.save(heads[::-1])
    return made, len(heads)


def _workspace(log: EventLog, row: sessions.SessionRow) -> str | None:
    """Return the folder of a session's last turn, or None if unknown."""
    events = log.read(row.name, row.served - 1, row.served) if row.served else []
    served = [(upcast_data(event) or {}).get("served") for event in events]
    folder = served[0].get("workspace") if served and isinstance(served[0], Mapping) else None
    return folder if isinstance(folder, str) else None


# ── the proxy ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """The known data of a conversation of a proxy: sizes in tokens, and no text.

    `summary` is the block that replaces the left-out text, if the store has one; `where` names the
    proxy or its store.
    """

    listed: ListedSession
    where: str
    model: str | None
    used: int
    basis: str
    window: int | None
    summary: str = ""
    notes: tuple[str, ...] = ()


def read_proxy_store(url: str, store: str | None) -> list[RecordedConversation]:
    """Return the conversations of a running proxy, else the compacted ones in its store.

    Raises StoreError if neither exists.
    """
    answer = default().transport.ask(HttpRequest(f"{url.rstrip('/')}/ullage/sessions"))
    said = answer.json() if answer.status == 200 and store is None else None
    entries = said.get("sessions") if isinstance(said, Mapping) else None
    if isinstance(entries, list):
        return [_entry(one, url) for one in entries if isinstance(one, Mapping)]
    opened = open_store(store or place.default_url(place.PROXY), create=False)
    try:
        return [_checkpoint(one, opened.url) for one in reversed(opened.checkpoints.all())]
    finally:
        opened.close()


def _entry(told: Mapping[str, Any], url: str) -> RecordedConversation:
    name, used, window = str(told.get("id")), told.get("used"), told.get("window")
    notes = [
        f"{told.get(key):,} {word}"
        for key, word in (
            ("requests", "requests"),
            ("messages", "messages"),
            ("compactions", "compactions"),
            ("saved", "tokens saved by compactions"),
        )
        if type(told.get(key)) is int
    ]
    at = told.get("at")
    title = f"{told.get('model') or 'model unknown'} at {told.get('upstream')}"
    return RecordedConversation(
        ListedSession(name, url, float(at) if isinstance(at, int | float) else 0.0, None, title),
        f"the proxy at {url}",
        told.get("model") or None,
        used if type(used) is int else 0,
        str(told.get("basis") or "estimate"),
        window if type(window) is int and window > 0 else None,
        notes=tuple(notes),
    )


def _checkpoint(made: Checkpoint, url: str) -> RecordedConversation:
    how = name_strategies(made.strategy, made.fallback_reason)
    title = f"{made.count:,} messages, compacted by {how}"
    left = f"{made.source_count:,} messages were left out"
    sizes = f"{made.tokens_before:,} -> {made.tokens_after:,} tokens"
    return RecordedConversation(
        ListedSession(made.prefix[:16], url, 0.0, None, title),
        f"the store {url}",
        None,
        made.tokens_after if made.tokens_after_measured is None else made.tokens_after_measured,
        "estimate" if made.tokens_after_measured is None else "provider",
        made.bound or None,
        made.summary,
        (f"{left}: {sizes}, as of the last compaction",),
    )


def read_kept(
    found: Sequence[RecordedConversation], name: str | None, shown: ShownWindow
) -> Contents:
    """Return the data of one conversation: the newest, or the one with this beginning of its id.

    Raises ConfigurationError if there is no match, or more than one.
    """
    chosen = [one for one in found if name is None or one.listed.id.startswith(name)]
    if not chosen or (name is not None and len(chosen) > 1):
        many = f"{len(chosen)} conversations" if chosen else "no conversation"
        raise ConfigurationError(
            f"the proxy keeps {many} whose id begins with {name!r}: --from proxy --list names them"
            if name is not None
            else "the proxy keeps no conversation: it compacted none, and none runs at --proxy"
        )
    return _contents(chosen[0], shown)


def _contents(one: RecordedConversation, shown: ShownWindow) -> Contents:
    bound = shown.window or one.window
    claims = [Claim("total", bound, "probe", one.where)] if bound is not None else []
    window = read_window(shown.window) or resolve(claims, model=one.model)
    counted = default().text_meter(shown.model or one.model).counter.count(one.summary)
    summary = min(counted, one.used)
    rest = one.used - summary
    rows = [
        PartRow("checkpoint", summary, summary, summary, "estimate"),
        PartRow("unattributed", rest, rest, rest, "inferred", "the proxy keeps sizes, and no text"),
    ]
    count = Count(one.used, one.used, one.used, "server" if one.basis == "provider" else "estimate")
    report = Report(
        used=count,
        basis=one.basis if one.basis in BASES else "estimate",
        rows=tuple(row for row in rows if row.tokens),
        bound=window.input_tokens,
        reserved=shown.reserved or 0,
        assessment=assess(count, window),
    )
    at = _time(one.listed.at) if one.listed.at else None
    source = {"kind": "proxy", "path": one.listed.path, "session": one.listed.id}
    return Contents(
        report,
        window,
        shown.model or one.model,
        {**source, "project": None, "title": one.listed.title, "at": at},
        compaction_at=compaction_point(window, default().settings.policy),
        warnings=one.notes,
    )
