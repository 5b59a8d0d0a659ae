"""A whole answer of a model, what arrives of it piece by piece, and what assembles the pieces.

It knows no dialect.
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
"""Why an answer ended: by itself, for tools, at a limit, withheld, or for a reason not known."""


Kind = Literal["text_delta", "reasoning_delta"]


class Delta(NamedTuple):
    """A piece of text as it arrives, to be shown at once."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered.

    `thoughts` are blocks of reasoning just as this dialect wants them sent back: Anthropic's
    blocks with their signature, Responses' items, of Chat the fields of the assistant message.
    `calls` have ids that are never empty and differ within the answer. `report` holds what was
    said of usage and of the end, for `View.observe`.
    """

    text: str
    thoughts: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage | None = None
    report: Mapping[str, Any] = field(default_factory=dict)


class Assembly(Protocol):
    """Put together one answer from its events. The rooms of the dialects implement it.

    `begun` tells that content has arrived, `called` that some of a tool call has, `ended` that
    the terminal event has; `failed` is the event that came in its place. `text` is the text so
    far.
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
        """Take the next event, or a whole answer; return what of it is to be shown.

        Never raises: what is not understood is passed over.
        """
        ...

    def reply(self) -> Reply:
        """Return what has arrived so far as an answer."""
        ...


class Watch(ABC):
    """What the events of one stream tell as they pass; nothing of their content is kept.

    `begun` is set by the first event that is more than an opening, `ended` by the terminal one;
    `failed` is an error in the place of an answer. `report` is what to learn from, once it is
    complete. The folders of the dialects derive from it.
    """

    __slots__ = ("begun", "ended", "failed", "report")

    def __init__(self) -> None:
        self.begun = self.ended = False
        self.failed: Any = None
        self.report: Any = None

    @abstractmethod
    def see(self, event: Any) -> bool:
        """Read an event, a mapping or an SDK's object; tell whether it is one of this dialect."""
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
"""Fields of a response that tell of its size, or of what the server did to the prompt."""


def extract_report(response: Any) -> Any:
    """Return what an SDK's response tells of its size, without its content.

    Writing out a whole response costs time, and warns where the SDK has put a parsed value into
    it. What reports no usage this way is returned as it is.
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
"""The type of what a provider compacted, in answers of Anthropic and of OpenAI."""


def assign_ids(calls: Iterable[tuple[str, str, str]], salt: str) -> tuple[Call, ...]:
    """Return calls (id, name, arguments) with ids that are never empty and never the same.

    Arguments that are missing are those of a call without any: `{}`.
    """
    made: list[Call] = []
    used: set[str] = set()
    for place, (given, name, arguments) in enumerate(calls):
        call_id = given if given and given not in used else _make_id(salt, place, used)
        used.add(call_id)
        made.append(Call(call_id, name, arguments if arguments.strip() else "{}"))
    return tuple(made)


def _make_id(salt: str, place: int, used: set[str]) -> str:
    """Return an id made of the salt and the place of a call.

    Nine letters and digits: Mistral's API takes no other ids, and all others take these.
    """
    attempt = 0
    while True:
        seed = f"{salt}/{place}/{attempt}".encode("utf-8", "surrogatepass")
        made = "c" + b32encode(blake2b(seed, digest_size=5).digest()).decode("ascii").lower()
        if made not in used:
            return made
        attempt += 1


def as_json(value: object) -> str:
    """Return arguments as JSON text: text as it is, nothing as none, the rest written out."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # what no JSON text can have been
        return ""


def read_text(value: object) -> str:
    """Return a field that ought to be text; anything else is none."""
    return value if isinstance(value, str) else ""


def fields(value: object) -> Mapping[str, Any]:
    """Return a field that ought to be a mapping; anything else is an empty one."""
    return value if isinstance(value, Mapping) else {}


def members(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a field that ought to be a list of them."""
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list | tuple) else []
