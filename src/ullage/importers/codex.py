"""Rollouts of Codex: the Responses items in the window, and the reports.

Lines are `{timestamp, type, payload}`. A `token_count` ends a call. Its `last_token_usage` is the
usage of that call, and shows how full the window is with the answer. Its `total_token_usage` is a
ledger that only grows. The file states the window. It does not hold tool schemas.

Sources: openai/codex (codex-rs/rollout/src, codex-rs/core/src/context_manager/history.rs for the
effect of a rollback), ryoppippi/ccusage for repeated and replayed counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.values.progress import Progress, ignore
from ullage.importers import titles
from ullage.importers.lines import ObjectLines, note
from ullage.importers.session import (
    CallReport,
    ImportedSession,
    ModelTurn,
    PaidCall,
    plural,
    total,
    words,
)

SUMMARIES: Final = frozenset({"compaction", "compaction_summary", "context_compaction"})
"""Items that replace omitted history, mostly encrypted."""

GENERATED: Final = frozenset(
    {
        "reasoning",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "tool_search_call",
        "web_search_call",
        "image_generation_call",
        *SUMMARIES,
    }
)
"""Items that a model writes, in addition to messages of the assistant."""

GIVEN: Final = frozenset(
    {
        "message",
        "function_call_output",
        "custom_tool_call_output",
        "tool_search_output",
        "additional_tools",
        "agent_message",
    }
)

UNSENT: Final = frozenset({"ghost_snapshot", "compaction_trigger"})
"""Items that Codex writes for itself."""

SILENT: Final = frozenset({"world_state", "security_risk_score"})
"""Known lines that have no effect here."""

CONTEXT: Final = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<skill>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<subagent_notification>",
)
"""First words of user messages that Codex wrote itself: they open no turn of the user."""

LARGEST: Final = 1_000_000_000
"""Larger than any real number of tokens or turns of a session."""

PROVIDER: Final = "openai"
"""The provider if a header names none."""

NOT_IN_FILE: Final = "tool schemas are not in the file: the first report less what was counted"

Item = Mapping[str, Any]


def read(data: bytes, path: str = "", report: Progress = ignore) -> ImportedSession:
    """Read a rollout from its bytes; raises ConfigurationError if it holds no items."""
    lines = ObjectLines(data, report)
    rollout = _Rollout()
    for fields, _ in lines:
        rollout.take(fields)
    if not rollout.window.items:
        raise ConfigurationError(
            f"{path or 'the file'} holds no items of a Codex session: expected lines of type "
            "response_item"
        )
    window, ledger = rollout.window, rollout.ledger
    return ImportedSession(
        source="codex",
        dialect=names.OPENAI_RESPONSES,
        messages=tuple(window.items),
        turns=tuple(window.turns),
        start=window.start,
        system=rollout.system,
        model=rollout.model,
        window_tokens=rollout.window_tokens,
        tokens=window.tokens,
        covered=window.covered if window.tokens is not None else None,
        id=rollout.id,
        path=path,
        summaries=tuple(window.summaries),
        spent=ledger.sum_spent(),
        calls=tuple(window.calls()),
        providers=(rollout.provider,),
        apart=NOT_IN_FILE,
        project=rollout.project,
        title=next((titles.line(text(i)) for i in window.items if asks(i) and text(i)), None),
        at=rollout.at,
        unread=MappingProxyType({**lines.unread, **rollout.unread}),
        warnings=tuple(rollout.warnings()),
    )


class _Ledger:
    """The total usage of calls, and a check for new reports."""

    def __init__(self) -> None:
        self._total: Usage | None = None
        self._brought: Usage | None = None
        self._calls: list[Usage] = []

    def news(self, info: Item, *, replayed: bool, grown: bool) -> Usage | None:
        """Return the usage of a call not reported before, or None for repeats and replays.

        Codex repeats the last count with new rate limits or after a compaction; then the total has
        not grown. If there is no total, new items (`grown`) show whether the report is new.
        """
        reported = usage(info.get("last_token_usage"))
        so_far = usage(info.get("total_token_usage"))
        repeated = so_far == self._total if so_far is not None else not grown
        self._total = so_far or self._total
        if replayed:
            self._brought = so_far or self._brought
            return None
        if repeated or reported is None:
            return None
        self._calls.append(reported)
        return reported

    def sum_spent(self) -> Usage | None:
        """Return this session's usage, without the usage of the session it came from."""
        ours, before = self._total, self._brought
        if ours is None or before is None:
            return ours or total(self._calls)
        buckets = (
            ours.input - before.input,
            ours.cache_read - before.cache_read,
            ours.cache_write - before.cache_write,
            ours.output - before.output,
            ours.reasoning - before.reasoning,
        )
        return Usage(*buckets) if min(buckets) >= 0 else ours


class _Window:
    """The items in order, and the calls that used them."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.turns: list[ModelTurn] = []
        self.summaries: list[int] = []
        self.start = 0
        self.tokens: int | None = None
        self.covered = 0
        self._compacted = False
        self._asked: list[int] = []
        self._answering = False
        self._paid: list[tuple[Usage, str | None, list[Item]]] = []

    @property
    def grown(self) -> bool:
        """Tell whether items followed the last report."""
        return len(self.items) > self.covered

    def append(self, item: Item) -> None:
        """Add an item at the end."""
        place = len(self.items)
        if asks(item):
            self._asked.append(place)
        if words(item.get("type")) in SUMMARIES:
            self.summaries.append(place)
        self.items.append(item)
        self._answering = self._answering and is_generated(item)
        if self._answering:
            self.covered = place + 1
            self._paid[-1][2].append(item)

    def report(self, usage: Usage, size: int | None, model: str | None, at: str | None) -> None:
        """End a call: the last items that the model wrote are the answer, the rest is the prompt.

        Older files have the count before the answer: then the next items are the answer.
        """
        stop = end = len(self.items)
        while stop > max(self.start, self.covered) and is_generated(self.items[stop - 1]):
            stop -= 1
        told = CallReport.of(usage)
        number = len(self.turns) + 1
        place = len(self._paid)
        self._paid.append((usage, model, list(self.items[stop:end])))
        self.turns.append(
            ModelTurn(
                number, self.start, stop, told.tokens, usage, model, at, self._compacted, place
            )
        )
        self._compacted = False
        self._answering = stop == end
        self.covered = end
        self.tokens = size or told.tokens

    def calls(self) -> Iterator[PaidCall]:
        """Yield the calls that were paid for, including those that were rolled back."""
        for usage, model, items in self._paid:
            answer = tuple(open_item(i) for i in items if words(i.get("type")) not in SUMMARIES)
            yield PaidCall(usage, model, answer)

    def replace(self, items: Sequence[Item], summary: str | None) -> None:
        """Begin a new window with the items that a compaction left."""
        self.start = len(self.items)
        self._compacted, self._answering = True, False
        self.tokens = None
        self._asked.clear()
        for item in items:
            if summary is not None and summary in text(item):
                self.summaries.append(len(self.items))
            self.append(item)
        self.covered = len(self.items)

    def undo(self, turns: int) -> int:
        """Remove the user's last turns and all that followed; return the number of items."""
        if turns <= 0 or not self._asked:
            return 0
        first = self._asked[0]
        cut = self._asked[-min(turns, len(self._asked))]
        while cut > first and introduces(self.items[cut - 1]):
            cut -= 1
        gone = len(self.items) - cut
        del self.items[cut:]
        while self._asked and self._asked[-1] >= cut:
            self._asked.pop()
        while self.summaries and self.summaries[-1] >= cut:
            self.summaries.pop()
        while self.turns and self.turns[-1].stop > cut:
            self._compacted = self.turns.pop().compacted or self._compacted
        self._answering = False
        self._reread(cut)
        return gone

    def _reread(self, cut: int) -> None:
        """Restore the last report that is still valid for this window."""
        last = self.turns[-1] if self.turns else None
        if last is not None and last.start == self.start and last.tokens is not None:
            self.tokens, self.covered = last.tokens, last.stop
        else:
            self.tokens, self.covered = None, min(self.covered, cut)


class _Rollout:
    """One file, line by line."""

    def __init__(self) -> None:
        self.window = _Window()
        self.ledger = _Ledger()
        self.system: Any = None
        self.model: str | None = None
        self.window_tokens: int | None = None
        self.id: str | None = None
        self.provider = PROVIDER
        self.project: str | None = None
        self.at: str | None = None
        self.unread: dict[str, int] = {}
        self._undone = 0
        self._missing = 0
        self._origin: str | None = None
        self._replayed = 0

    def take(self, fields: Item) -> None:
        """Take the next line."""
        kind, payload = words(fields.get("type")), fields.get("payload")
        at = words(fields.get("timestamp"))
        self.at = at or self.at
        if not isinstance(payload, dict):
            self._bare(kind, fields)
        elif kind == "response_item":
            self._item(payload)
        elif kind == "event_msg":
            self._event(payload, at)
        elif kind == "compacted":
            self._compact(payload)
        elif kind == "session_meta":
            self._meta(payload, at)
        elif kind == "turn_context":
            self.model = words(payload.get("model")) or self.model
            self.project = words(payload.get("cwd")) or self.project
        elif kind == "token_usage_record":
            told = {
                "last_token_usage": payload.get("usage"),
                "total_token_usage": payload.get("thread_token_usage"),
            }
            self._count(told, at)
        elif kind not in SILENT:
            note(self.unread, kind)

    def warnings(self) -> list[str]:
        """Return warnings about parts of the file that are not in the window."""
        told = []
        if self._undone:
            told.append(f"{plural(self._undone, 'item')} were rolled back and are left out")
        if self._replayed:
            counts = plural(self._replayed, "count")
            told.append(f"{counts} of the session this one was spawned from are skipped")
        if self._missing:
            items = plural(self._missing, "item")
            told.append(f"{items} that a compaction kept are not in this file")
        return told

    def _bare(self, kind: str | None, fields: Item) -> None:
        """Read a line of the first versions: items and the header without an envelope."""
        if kind in GENERATED or kind in GIVEN:
            self._item(fields)
        elif kind is None and "instructions" in fields:
            self._meta(fields, words(fields.get("timestamp")))
        elif "record_type" not in fields:
            note(self.unread, kind)

    def _meta(self, payload: Item, at: str | None) -> None:
        """Read the header; a fork repeats its parent's header after its own."""
        if self.id is not None or self.system is not None:
            return
        self.id = words(payload.get("id"))
        self.provider = words(payload.get("model_provider")) or PROVIDER
        self.project = words(payload.get("cwd")) or self.project
        base = payload.get("base_instructions")
        base = base.get("text") if isinstance(base, dict) else base
        self.system = words(base) or words(payload.get("instructions"))
        if is_spawned(payload):
            self._origin = at

    def _item(self, payload: Item) -> None:
        kind = words(payload.get("type"))
        if kind in UNSENT:
            return
        if kind not in GENERATED and kind not in GIVEN:
            note(self.unread, kind)
        self.window.append(payload)

    def _event(self, payload: Item, at: str | None) -> None:
        self._learn(payload.get("model_context_window"))
        kind = payload.get("type")
        if kind == "token_count" and isinstance(payload.get("info"), dict):
            self._learn(payload["info"].get("model_context_window"))
            self._count(payload["info"], at)
        elif kind == "thread_rolled_back":
            turns = positive(payload.get("num_turns"))
            self._undone += self.window.undo(turns or 0)

    def _learn(self, tokens: Any) -> None:
        self.window_tokens = positive(tokens) or self.window_tokens

    def _count(self, info: Item, at: str | None) -> None:
        origin = self._origin
        replayed = origin is not None and at is not None and at[:19] == origin[:19]
        self._replayed += replayed
        found = self.ledger.news(info, replayed=replayed, grown=self.window.grown)
        if found is None:
            return
        last = info.get("last_token_usage")
        size = positive(last.get("total_tokens")) if isinstance(last, dict) else None
        self.window.report(found, size, self.model, at)

    def _compact(self, payload: Item) -> None:
        """Read a compaction: its list replaces the history, or else its message alone does."""
        summary = words(payload.get("message"))
        kept = payload.get("replacement_history")
        if not isinstance(kept, list):
            kept = self._entries(payload.get("replacement_history_entries"))
        if kept is None:
            part = {"type": "input_text", "text": summary or ""}
            kept = [{"type": "message", "role": "user", "content": [part]}] if summary else []
        self.window.replace([item for item in kept if isinstance(item, dict)], summary)

    def _entries(self, entries: Any) -> list[Any] | None:
        """Return the items included in a list of entries; count those stored elsewhere."""
        if not isinstance(entries, list):
            return None
        found = []
        for entry in entries:
            item = inline(entry)
            if item is None:
                self._missing += 1
            else:
                found.append(item)
        return found


def usage(told: Any) -> Usage | None:
    """Read Codex's own form of a report: `input_tokens` includes tokens read from caches."""
    if not isinstance(told, Mapping):
        return None
    found = Usage.from_report(
        {
            "input_tokens": told.get("input_tokens"),
            "input_tokens_details": {"cached_tokens": told.get("cached_input_tokens")},
            "output_tokens": told.get("output_tokens"),
            "output_tokens_details": {"reasoning_tokens": told.get("reasoning_output_tokens")},
        },
        dialect=names.OPENAI_CHAT,
    )
    written = positive(told.get("cache_write_input_tokens"))
    if found is None or written is None or written > found.input:
        return found
    return Usage(found.input - written, found.cache_read, written, found.output, found.reasoning)


def positive(value: Any) -> int | None:
    """Return a number of tokens or turns, or None if it is not a plausible one."""
    plain = isinstance(value, int) and not isinstance(value, bool)
    return value if plain and 0 < value <= LARGEST else None


def text(item: Item) -> str:
    """Return the text of a message: all of its text parts."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(piece for piece in texts if isinstance(piece, str))


def open_item(item: Item) -> Item:
    """Return an item without its encrypted content, which is not part of the answer."""
    return {key: value for key, value in item.items() if key != "encrypted_content"}


def is_generated(item: Item) -> bool:
    """Tell whether the model wrote an item."""
    return words(item.get("type")) in GENERATED or item.get("role") == "assistant"


def contextual(item: Item) -> bool:
    """Tell whether a message of role user was written by Codex."""
    return text(item).lstrip().startswith(CONTEXT)


def asks(item: Item) -> bool:
    """Tell whether an item opens a turn: a person's message, or another agent's."""
    if item.get("type") == "agent_message":
        return True
    return item.get("role") == "user" and not contextual(item)


def introduces(item: Item) -> bool:
    """Tell whether an item is context that Codex puts before a user's message."""
    return item.get("role") == "developer" or (item.get("role") == "user" and contextual(item))


def is_spawned(header: Item) -> bool:
    """Tell whether a session came from another one, whose lines its file then repeats."""
    source = header.get("source")
    if isinstance(source, dict) and "subagent" in source:
        return True
    return any(words(header.get(key)) for key in ("parent_thread_id", "forked_from_id"))


def inline(entry: Any) -> Item | None:
    """Return the item that an entry of a replacement holds, or None if it only points to one."""
    if not isinstance(entry, dict):
        return None
    if words(entry.get("type")) in GENERATED | GIVEN:
        return entry
    held = (entry.get(key) for key in ("item", "inline", "payload"))
    return next((item for item in held if isinstance(item, dict)), None)
