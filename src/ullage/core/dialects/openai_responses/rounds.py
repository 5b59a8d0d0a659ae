"""Several rounds of the Responses API as one answer.

Reasoning belongs to the item after it. Reasoning before a call of an added tool is hidden with the
call, so reasoning waits until the next item arrives. Source: OpenAI API reference, "Streaming
events". This module knows no other dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ullage.core.dialects.reply import fields, members, read_text
from ullage.core.dialects.rounds import Event, Rounds, write_frame

QUIET: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
"""Events before the first content."""

ENDS: Final = frozenset({"response.completed", "response.incomplete"})
ITEMS: Final = frozenset({"response.output_item.added", "response.output_item.done"})


def is_shaped(request: Mapping[str, Any]) -> bool:
    """Tell whether a request prescribes the form of the answer."""
    asked = fields(request.get("text")).get("format")
    return asked is not None and fields(asked).get("type") != "text"


class ResponsesRounds(Rounds):
    """Rounds of the Responses API: items and events are numbered as those of one response.

    Its id is the id of the first round that the client saw.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._next = self._number = 0
        self._id: object = None
        self._earlier: list[Event] = []
        self._items: list[Event] = []
        super().__init__(names)

    def take_whole(self, answer: Event) -> Event:
        """Take a response; return the client's view of it."""
        output = members(answer.get("output"))
        if self._keeps_whole(_list_calls(output)) or self.turned:
            return answer
        return {**answer, "output": self._keep(output)}

    def _keep(self, output: Sequence[Event]) -> list[Event]:
        """Return the items without calls of added tools and the reasoning before them."""
        kept: list[Event] = []
        for item in output:
            if item.get("type") != "function_call" or item.get("name") not in self.names:
                kept.append(item)
                continue
            while kept and kept[-1].get("type") == "reasoning":
                kept.pop()
        return kept

    def _reset(self) -> None:
        self._places: dict[object, int] = {}
        self._stripped: set[object] = set()
        self._waiting: list[tuple[Event, bytes]] = []
        self._thoughts: set[object] = set()
        if not self.shown:
            self._next = self._number = 0
        self._earlier += self._items
        self._items = []

    def _see(self, event: Event, frame: bytes) -> bytes:
        kind = event.get("type")
        if kind in QUIET:
            return self._open(event, frame)
        if kind in ITEMS:
            return self._take_item(event, frame)
        if kind in ENDS:
            return self._release() + self._close(event, frame)
        keys = _list_keys(event, {})
        if not self._stripped.isdisjoint(keys):
            return b""
        if not self._thoughts.isdisjoint(keys):
            self._waiting.append((event, frame))
            return b""
        return self._relay(event, frame)

    def _open(self, event: Event, frame: bytes) -> bytes:
        """Return an event that opens a response; only the first shown response is opened."""
        if self._follows:
            return b""
        self._id = fields(event.get("response")).get("id")
        return self._relay(event, frame, says=False)

    def _take_item(self, event: Event, frame: bytes) -> bytes:
        item = fields(event.get("item"))
        kind, keys = read_text(item.get("type")), _list_keys(event, item)
        if not self._stripped.isdisjoint(keys):
            return b""
        if kind == "function_call" and not self._keeps(item.get("name")):
            self._waiting.clear()
            self._stripped.update(keys)
            return b""
        if kind == "reasoning":
            self._thoughts.update(keys)
            self._waiting.append((event, frame))
            return b""
        return self._release() + self._relay(event, frame)

    def _release(self) -> bytes:
        """Return the reasoning that waited."""
        out = b"".join([self._relay(event, frame) for event, frame in self._waiting])
        self._waiting.clear()
        self._thoughts.clear()
        return out

    def _relay(self, event: Event, frame: bytes, *, says: bool = True) -> bytes:
        """Return an event with the numbers that the client knows for it and its item."""
        if event.get("type") == "response.output_item.done":
            self._items.append(fields(event.get("item")))
        made = dict(event)
        index = event.get("output_index")
        if isinstance(index, int):
            if index not in self._places:
                self._places[index] = self._next
                self._next += 1
            made["output_index"] = self._places[index]
        if isinstance(event.get("sequence_number"), int):
            made["sequence_number"] = self._number
            self._number += 1
        return self._write(frame if made == event else write_frame(made), says=says)

    def _close(self, event: Event, frame: bytes) -> bytes:
        """Return the event that ends the response; its output is everything that the client saw."""
        response = fields(event.get("response"))
        output = members(response.get("output"))
        kept = self._keep(output)
        if len(kept) < len(output) and not self._theirs:  # calls without an event of their own
            self._keeps_whole(_list_calls(output))
        if self.turned:
            return b""
        told = dict(response)
        if self._follows and self._id is not None:
            told["id"] = self._id
        if output or self._earlier:
            told["output"] = [*self._earlier, *kept]
        if told == response:
            return self._relay(event, frame)
        made = {**event, "response": told}
        return self._relay(made, write_frame(made))


def _list_calls(output: Sequence[Event]) -> list[Any]:
    return [item.get("name") for item in output if item.get("type") == "function_call"]


def _list_keys(event: Event, item: Event) -> list[object]:
    """Return the keys of an item; llama.cpp sends no index, and uses the call id."""
    names = (event.get("item_id"), item.get("id"), item.get("call_id"))
    named = next((name for name in names if name), None)
    return [key for key in (event.get("output_index"), named) if key is not None]
