"""A whole answer of a model, its pieces as they arrive, and their assembly.

This module knows no dialect.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b32encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, Protocol

from ullage.core.dialects.usage import Usage
from ullage.core.messages.fields import pick
from ullage.core.messages.transcript import Call

Stop = Literal["end", "calls", "length", "filter", "other"]
"""Why an answer ended: by itself, for tools, at a limit, by a filter, or for an unknown reason."""


Kind = Literal["text_delta", "reasoning_delta"]


class Delta(NamedTuple):
    """A piece of text as it arrives, to be shown at once."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    `thoughts` are blocks of reasoning in the form in which this dialect wants them back:
    Anthropic's blocks with their signature, Responses' items, Chat's fields of the assistant
    message. `calls` have non-empty ids that differ within the answer. `report` has usage and end,
    for `View.observe`.
    """

    text: str
    thoughts: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage | None = None
    report: Mapping[str, Any] = field(default_factory=dict)


class Assembly(Protocol):
    """Assembles one answer from its events. The folders of the dialects implement it.

    `begun` says that content has arrived, `called` that part of a tool call has, `ended` that the
    last event has. `failed` is an error event in its place. `text` is the text so far.
    """

    begun: bool
    ended: bool
    called: bool
    failed: Mapping[str, Any] | None

    @property
    def text(self) -> str:
        """The text so far."""
        ...

    def take(self, event: Mapping[str, Any]) -> list[Delta]:
        """Take the next event, or a whole answer; return the pieces to show.

        Never raises: unknown content is ignored.
        """
        ...

    def reply(self) -> Reply:
        """Return the answer as far as it has arrived."""
        ...


class Watch(ABC):
    """The facts that the events of one stream show as they pass; their content is not kept.

    `begun` is set by the first event that is more than an opening, `ended` by the last one;
    `failed` is an error in place of an answer. `report` is the complete usage report to learn from.
    The folders of the dialects derive from it.
    """

    __slots__ = ("begun", "ended", "failed", "report")

    def __init__(self) -> None:
        self.begun = self.ended = False
        self.failed: Any = None
        self.report: Any = None

    @abstractmethod
    def see(self, event: Any) -> bool:
        """Read an event, a mapping or an SDK object; tell whether it is one of this dialect."""
        ...


TELLING: Final = (
    "usage",
    "timings",
    "stop_reason",
    "incomplete_details",
    "truncation",
    "context_management",
    "input_transformations",
)
"""Fields of a response about its size, or about the server's changes to the prompt."""


def extract_report(response: Any) -> Any:
    """Return the size report of an SDK's response, without its content.

    Converting a whole response costs time, and warns if the SDK has put a parsed value into it. A
    response without such a report is returned unchanged.
    """
    if (
        type(response) is dict
        or isinstance(response, Mapping)
        or getattr(response, "usage", None) is None
    ):
        return response
    told = {name: getattr(response, name, None) for name in TELLING}
    choices = getattr(response, "choices", None)
    if isinstance(choices, list) and choices:
        told["choices"] = [{"finish_reason": pick(choices[0], "finish_reason")}]
    for name in ("output", "content"):
        made = getattr(response, name, None)
        if isinstance(made, list) and any(pick(piece, "type") == COMPACTION for piece in made):
            told[name] = [{"type": COMPACTION}]
    return {name: value for name, value in told.items() if value is not None}


COMPACTION: Final = "compaction"
"""The type of a provider's compaction, in answers of Anthropic and of OpenAI."""


def assign_ids(calls: Iterable[tuple[str, str, str]], salt: str) -> tuple[Call, ...]:
    """Return calls (id, name, arguments) with non-empty and unique ids.

    Missing arguments become `{}`, as for a call without any.
    """
    made: list[Call] = []
    used: set[str] = set()
    for place, (given, name, arguments) in enumerate(calls):
        call_id = given if given and given not in used else _make_id(salt, place, used)
        used.add(call_id)
        made.append(Call(call_id, name, arguments if arguments.strip() else "{}"))
    return tuple(made)


def _make_id(salt: str, place: int, used: set[str]) -> str:
    """Return an id made from the salt and the place of a call.

    Nine letters and digits: Mistral's API accepts no other ids, and all others accept these.
    """
    attempt = 0
    while True:
        seed = f"{salt}/{place}/{attempt}".encode("utf-8", "surrogatepass")
        made = "c" + b32encode(blake2b(seed, digest_size=5).digest()).decode("ascii").lower()
        if made not in used:
            return made
        attempt += 1


def as_json(value: object) -> str:
    """Return arguments as JSON text: text unchanged, None as empty, other values encoded."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # not from any JSON text
        return ""


def read_text(value: object) -> str:
    """Return a field that should be text; anything else becomes an empty text."""
    return value if isinstance(value, str) else ""


def fields(value: object) -> Mapping[str, Any]:
    """Return a field that should be a mapping; anything else becomes an empty one."""
    return value if isinstance(value, Mapping) else {}


def members(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a field that should be a list of them."""
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list | tuple) else []
