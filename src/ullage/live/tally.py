"""The running result of one session's events: a row, requests, events.

It continues from the last event, so a growing session is never read twice. The module does not know
the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from ullage.core.dialects.usage import Usage
from ullage.core.messages.labels import label_call, shorten
from ullage.core.session.log.event import Event, upcast_data
from ullage.core.summary.flaws import name_strategies
from ullage.live.values import (
    LiveCompaction,
    LiveEvent,
    LiveRequest,
    LiveSession,
    measure_pace,
    share_cached,
)

Data = Mapping[str, Any]

SOURCE: Final = "ullage"
REQUESTS: Final = 2_000
EVENTS: Final = 1_000
"""Most requests and events that are kept, the newest ones."""

TITLE: Final = 120
ENDS: Final = ("turn_completed", "turn_failed", "turn_interrupted")
BUCKETS: Final = tuple(Usage.__slots__)


class SessionTally:
    """Takes in the events of one session; `head` and `last` are the seq and id of the last one.

    `serving` is the model that answered last, with its server.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.head = 0
        self.last = ""
        self.requests: deque[LiveRequest] = deque(maxlen=REQUESTS)
        self.events: deque[LiveEvent] = deque(maxlen=EVENTS)
        self.compactions: list[LiveCompaction] = []
        self._compacted_at: list[int] = []
        self._keys: list[tuple[Any, ...]] = []
        self._calls: dict[str, str] = {}
        self.serving: Data = {}
        self._title = ""
        self._turn = False
        self._dollars: float | None = None
        self._answered = self._faults = self._said = 0
        self._at = 0.0
        self._compacted = False
        self._steps: Mapping[str, Callable[[Event, Data], str]] = {
            "user_message": self._take_message,
            "assistant_message": self._take_answer,
            "tool_call": self._take_call,
            "tool_result": self._take_result,
            "provider_usage": self._take_usage,
            "history_compaction": self._take_compaction,
            "turn_started": self._take_start,
            "message_pinned": _tell_pin,
            "turn_failed": _tell_failure,
            "turn_interrupted": _tell_interruption,
            "session_purged": self._take_purge,
        }

    def extend(self, events: Iterable[Event]) -> None:
        """Take in events, in order."""
        for event in events:
            self.head, self.last, self._at = event.seq, event.id, event.ts
            if event.type in ENDS:
                self._turn = False
            step = self._steps.get(event.type)
            data = upcast_data(event) if step is not None else None
            if step is not None and data is not None and (text := step(event, data)):
                self.events.append(LiveEvent(event.ts, event.type, text, event.seq))

    def make_row(self) -> LiveSession:
        """Return the current state of the session."""
        last = self.requests[-1] if self.requests else LiveRequest(0.0)
        bound = last.window
        pace = measure_pace([one.tokens for one in self.requests], bound)
        usages = [one.usage for one in self.requests if one.usage is not None]
        url, workspace = self.serving.get("base_url"), self.serving.get("workspace")
        standing = [made for made in self.compactions if not made.undone]
        return LiveSession(
            source=SOURCE,
            id=self.name,
            at=self._at,
            project=workspace if isinstance(workspace, str) else "",
            title=self._title,
            model=str(self.serving.get("model") or ""),
            upstream=_name_host(url),
            state="running" if self._turn else "idle",
            used=last.tokens,
            window=bound,
            basis=last.basis,
            tier=last.tier,
            growth=pace.growth,
            left=pace.left,
            messages=self._said,
            requests=self._answered,
            dollars=self._dollars,
            cached=share_cached(usages),
            compactions=len(standing),
            saved=sum(made.before - made.after for made in standing),
            faults=self._faults,
            last=self.events[-1].text if self.events else "",
        )

    def find_compaction(self, number: int) -> int | None:
        """Return the seq of a compaction by its number, or None."""
        return self._compacted_at[number - 1] if 0 < number <= len(self._compacted_at) else None

    # --- the steps for each type ----------------------------------------------------------------

    def _take_message(self, event: Event, data: Data) -> str:
        del event
        text = shorten(str(data["text"]), TITLE)
        self._title = self._title or text
        self._said += 1
        return f"you: {text}"

    def _take_answer(self, event: Event, data: Data) -> str:
        del event
        self._said += 1
        return f"{data.get('model', 'the model')}: {shorten(str(data['text']), TITLE)}"

    def _take_call(self, event: Event, data: Data) -> str:
        del event
        label = f"{data['name']} {label_call(str(data['arguments']))}".strip()
        self._calls[str(data["call_id"])] = label
        return f"call {label}"

    def _take_result(self, event: Event, data: Data) -> str:
        del event
        self._said += 1
        failed = " failed" if data.get("is_error") is True else ""
        return f"result of {self._calls.pop(str(data['call_id']), 'a call')}{failed}"

    def _take_start(self, event: Event, data: Data) -> str:
        del event
        self._turn = True
        served = data.get("served")
        self.serving = served if isinstance(served, Mapping) else self.serving
        return ""

    def _take_usage(self, event: Event, data: Data) -> str:
        held = [data.get(name, 0) for name in BUCKETS]
        told = "input" in data and all(type(tokens) is int for tokens in held)
        usage = Usage(*held) if told else None
        context = data.get("context")
        context = context if isinstance(context, Mapping) else {}
        dollars = data.get("dollars")
        dollars = dollars if isinstance(dollars, int | float) else None
        if dollars is not None:
            self._dollars = (self._dollars or 0.0) + dollars
        faults = context.get("faults")
        self._faults += faults if type(faults) is int else 0
        self._answered += 1
        tokens = usage.prompt_tokens if usage is not None else _read_number(context, "tokens")
        made = LiveRequest(
            event.ts,
            tokens,
            _read_number(context, "window"),
            str(context.get("tier", "unavailable")),
            str(context.get("basis", "")),
            usage,
            dollars,
            self._compacted,
            note="asked again for what a compaction left out" if faults else "",
        )
        self._compacted = False
        self.requests.append(made)
        return ""

    def _take_compaction(self, event: Event, data: Data) -> str:
        made = data["checkpoint"]
        key = (made.get("prefix"), made.get("generation"))
        if data.get("measured") is True or data.get("undone") is True:
            return self._amend(key, made, undone=data.get("undone") is True)
        before, after = made.get("tokens_before", 0), made.get("tokens_after", 0)
        since = made.get("since")
        if isinstance(since, Mapping) and self.compactions:
            self.compactions[-1] = replace(self.compactions[-1], since=dict(since))
        lost = max(0, after - made.get("kept_tokens", 0))
        dollars = data.get("dollars")
        how = name_strategies(str(made.get("strategy")), made.get("fallback_reason"))
        self.compactions.append(
            LiveCompaction(
                len(self.compactions) + 1,
                event.ts,
                before,
                after,
                None,
                how,
                str(made.get("trigger", "")),
                str(made.get("policy", "")),
                made.get("source_count", 0),
                lost,
                dollars if isinstance(dollars, int | float) else None,
            )
        )
        self._compacted_at.append(event.seq)
        self._keys.append(key)
        self._compacted = True
        return f"compacted {before:,} -> {after:,} tokens ({how}, {made.get('trigger')})"

    def _amend(self, key: tuple[Any, ...], made: Data, *, undone: bool) -> str:
        for place in range(len(self._keys) - 1, -1, -1):
            if self._keys[place] == key:
                held = self.compactions[place]
                measured = made.get("tokens_after_measured")
                self.compactions[place] = replace(
                    held, undone=held.undone or undone, measured=measured or held.measured
                )
                return f"compaction {place + 1} was undone" if undone else ""
        return ""

    def _take_purge(self, event: Event, data: Data) -> str:
        del event, data
        self._title = ""
        return "the text of this session was erased"


def _tell_pin(event: Event, data: Data) -> str:
    del event
    return f"event {data['seq']} is pinned{' no more' if data.get('pinned') is False else ''}"


def _tell_failure(event: Event, data: Data) -> str:
    del event
    return f"the turn failed: {data.get('reason')}"


def _tell_interruption(event: Event, data: Data) -> str:
    del event, data
    return "the turn was interrupted"


def _read_number(data: Data, name: str) -> int | None:
    found = data.get(name)
    return found if type(found) is int else None


def _name_host(url: object) -> str:
    """Return the host and port of a URL, without anything else in it."""
    if not isinstance(url, str) or not url:
        return ""
    try:
        found = urlsplit(url)
        return f"{found.hostname or ''}{f':{found.port}' if found.port else ''}"
    except ValueError:
        return ""
