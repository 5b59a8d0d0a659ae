"""An answer of the Responses API, assembled from its events.

Items that the server repeats whole are used as they are; others are assembled from their pieces.
Source: OpenAI API reference, "Streaming events", and the types of OpenAI's Python SDK 3.54. This
module knows no other dialect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ullage.core.dialects.reply import (
    Delta,
    Kind,
    Reply,
    Stop,
    Watch,
    as_json,
    assign_ids,
    extract_report,
    fields,
    members,
    read_text,
)
from ullage.core.dialects.usage import Usage
from ullage.core.messages.fields import pick

ENDS: Final = frozenset({"response.completed", "response.incomplete"})
FAILS: Final = frozenset({"response.failed", "error"})

GROWING: Final[Mapping[str, tuple[str, Kind | None]]] = {
    "response.output_text.delta": ("message", "text_delta"),
    "response.refusal.delta": ("message", "text_delta"),
    "response.reasoning_text.delta": ("reasoning", "reasoning_delta"),
    "response.reasoning_summary_text.delta": ("reasoning", "reasoning_delta"),
    "response.function_call_arguments.delta": ("function_call", None),
}
"""Events that add to an item: the item's type, and the kind in which the addition is shown."""

KEPT: Final = frozenset({"reasoning", "compaction"})
"""Items that must be sent back unchanged."""

TOLD: Final = ("usage", "timings", "status", "incomplete_details", "truncation")
"""Fields of a response about its size and its end; `timings` are llama.cpp's."""


@dataclass(slots=True)
class _Item:
    """An item as it was last sent whole, and its pieces."""

    whole: Mapping[str, Any]
    pieces: list[str] = field(default_factory=list)
    done: bool = False

    @property
    def kind(self) -> str:
        return read_text(self.whole.get("type"))

    def text(self) -> str:
        """Return the text of a message: from its parts once it is whole, else from the pieces."""
        parts = members(self.whole.get("content"))
        texts = [read_text(part.get("text")) or read_text(part.get("refusal")) for part in parts]
        return "".join(texts) if self.done and any(texts) else "".join(self.pieces)

    def same(self, whole: Mapping[str, Any]) -> bool:
        """Tell whether a whole item is this one again."""
        return all(self.whole.get(name) == whole.get(name) for name in ("type", "call_id"))

    def is_refusal(self) -> bool:
        """Tell whether a message is a refusal."""
        return any(part.get("type") == "refusal" for part in members(self.whole.get("content")))

    def call(self) -> tuple[str, str, str]:
        """Return the id, the name and the arguments of a call."""
        arguments = as_json(self.whole.get("arguments"))
        if not (self.done and arguments):
            arguments = "".join(self.pieces) or arguments
        return read_text(self.whole.get("call_id")), read_text(self.whole.get("name")), arguments


class Responses:
    """Assembles an answer of the Responses API."""

    def __init__(self, salt: str = "") -> None:
        self.begun = self.ended = self.called = False
        self.failed: Mapping[str, Any] | None = None
        self._salt = salt
        self._items: list[_Item] = []
        self._known: dict[object, _Item] = {}
        self._refused = False
        self._report: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(item.text() for item in self._items if item.kind == "message")

    def take(self, event: Mapping[str, Any]) -> list[Delta]:
        """Take an event, or a whole response; return the pieces to show."""
        kind = read_text(event.get("type"))
        if kind in FAILS or (not kind and event.get("error")):
            self.failed = event
        elif kind in GROWING:
            return self._grew(event, *GROWING[kind])
        elif kind == "response.output_item.added":
            self._item(event, fields(event.get("item")), done=False)
        elif kind == "response.output_item.done":
            return self._item(event, fields(event.get("item")), done=True)
        elif kind in ENDS:
            return self._end(event, fields(event.get("response")))
        elif event.get("object") == "response":
            return self._end({}, event)
        self._refused = self._refused or kind == "response.refusal.done"
        return []

    def reply(self) -> Reply:
        """Return the answer as far as it has arrived."""
        asked = [item.call() for item in self._items if item.kind == "function_call"]
        calls = assign_ids(asked, self._salt)
        thoughts = tuple(
            dict(item.whole) for item in self._items if item.kind in KEPT and item.done
        )
        usage = Usage.from_report(self._report) if self._report else None
        return Reply(self.text, thoughts, calls, self._stop(calls), usage, dict(self._report))

    def _stop(self, calls: Sequence[object]) -> Stop:
        reason = read_text(fields(self._report.get("incomplete_details")).get("reason"))
        if reason == "max_output_tokens":
            return "length"
        refused = self._refused or any(item.is_refusal() for item in self._items)
        if reason == "content_filter" or refused:
            return "filter"
        if reason or self._report.get("status", "completed") != "completed":
            return "other"
        return "calls" if calls else "end"

    def _item(
        self, event: Mapping[str, Any], whole: Mapping[str, Any], *, done: bool
    ) -> list[Delta]:
        """Take an item, new or known; return the part of its text that was not shown yet."""
        keys = _keys(event, whole)
        item = self._find(keys, read_text(whole.get("type")))
        if item is None or (item.done and not (done and item.same(whole))):
            item = _Item(whole)
            self._items.append(item)
        self._known.update(dict.fromkeys(keys, item))
        item.whole, item.done = whole, item.done or done
        self.called = self.called or item.kind == "function_call"
        self.begun = self.begun or done or self.called
        return self._take_whole_text(item) if done else []

    def _find(self, keys: Sequence[object], kind: str) -> _Item | None:
        """Return the item with these keys; without keys, the last open one of its type."""
        if keys:
            return next((self._known[key] for key in keys if key in self._known), None)
        return next((i for i in reversed(self._items) if i.kind == kind and not i.done), None)

    def _take_whole_text(self, item: _Item) -> list[Delta]:
        """Return the text of a message that arrived whole and not in pieces."""
        text = item.text() if item.kind == "message" and not item.pieces else ""
        if not text:
            return []
        item.pieces.append(text)
        return [Delta("text_delta", text)]

    def _grew(self, event: Mapping[str, Any], of: str, shown: Kind | None) -> list[Delta]:
        piece = read_text(event.get("delta"))
        if not piece:
            return []
        keys = _keys(event, {})
        item = self._find(keys, of)
        if item is None:
            item = _Item({"type": of})
            self._items.append(item)
            self._known.update(dict.fromkeys(keys, item))
        item.pieces.append(piece)
        self.begun = True
        self.called = self.called or of == "function_call"
        return [Delta(shown, piece)] if shown is not None else []

    def _end(self, event: Mapping[str, Any], response: Mapping[str, Any]) -> list[Delta]:
        """Take the whole response, whose items may not have arrived before."""
        told = {**event, **response}
        self._report.update({k: told[k] for k in TOLD if told.get(k) is not None})
        if response.get("status") == "failed":
            self.failed = {"type": "response.failed", "response": response}
            return []
        deltas: list[Delta] = []
        done = Counter(item.kind for item in self._items if item.done)
        for place, whole in enumerate(members(response.get("output"))):
            kind = read_text(whole.get("type"))
            done[kind] -= 1
            if done[kind] < 0:  # this one did not arrive before
                deltas += self._item({"output_index": place}, whole, done=True)
        self.ended = self.begun = True
        return deltas


def _keys(event: Mapping[str, Any], item: Mapping[str, Any]) -> list[object]:
    """Return the keys of an item: its index, which gateways do not change, and its id.

    llama.cpp sends no index, and identifies a call by its call id. GitHub's gateway gives an item
    another id in every event.
    """
    place = event.get("output_index")
    name = (
        read_text(event.get("item_id"))
        or read_text(item.get("id"))
        or read_text(item.get("call_id"))
    )
    return [
        key for key in (place if isinstance(place, int) else None, name) if key not in (None, "")
    ]


QUIET: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
"""Events before the first content."""


class ResponsesWatch(Watch):
    """Watches a stream of the Responses API."""

    __slots__ = ()

    def see(self, event: Any) -> bool:
        """Read an event; tell whether it is one of this API."""
        kind = pick(event, "type")
        if not isinstance(kind, str) or not kind.startswith("response."):
            return False
        if kind in FAILS:
            self.failed = event
            return True
        self.begun = self.begun or kind not in QUIET
        if kind in ENDS:
            self.ended = True
            self.report = extract_report(pick(event, "response"))
        return True
