"""A neutral, frozen view of the caller's own messages.

A codec (`core.dialects`) reads each message once into a `Message`. The caller's object stays
unchanged in `Transcript.raws`, at the same position. All deciding code (counting, laws, policies)
uses only `Message` and `Rules` and so serves every dialect. This module knows nothing of wire
formats, tokens or windows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PartKind = Literal[
    "text",
    "refusal",
    "reasoning",
    "sealed",
    "compaction",
    "result",
    "image",
    "audio",
    "file",
    "other",
]
"""`sealed` is ciphertext that only the provider can read, such as encrypted reasoning. `compaction`
replaces all messages before its own: the provider made it, and reads nothing before it.
"""
DialectName = str
"""The name of a dialect: that of its folder in `core.dialects`."""
MediaKind = Literal["image", "audio", "file"]
Raw = Any
"""One message in the caller's form: a mapping or an SDK object. The JSON edge of the core."""

DIGEST_BYTES = 16
"""128 bits: two different prefixes share a digest with a chance below 1e-20 at 1e9 prefixes."""


OPERATOR = frozenset({"system", "developer"})
"""Roles of messages with the operator's instructions."""


SUMMARY_MARK = "[ullage: summary of "
"""The beginning of the text of a message that replaces dropped messages."""

THOUGHT_TEXT = "[ullage: reasoning left out]"
"""The text of a message that had only reasoning, which was left out."""

SKILL_MARK = "[ullage: skill "
"""The beginning of the text of a message with a skill."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The demands of a dialect on a history; the laws read only this.

    `first_roles` are the roles that may open the conversation after system messages; `alternation`
    is True if user and assistant must take turns.
    """

    dialect: DialectName
    first_roles: frozenset[str] = frozenset({"user", "assistant"})
    alternation: bool = False
    split_calls: bool = False
    """True if parallel calls of one response are in separate messages."""
    joins: bool = False
    """True if several messages of one role in a row are one turn. Then the results of a response
    share the user message right after it and come first in it; call ids are unique in the whole
    history; operator text inside the list follows a user message.
    """
    loops: bool = False
    """True if all responses to one request of the user stay or go together (a provider that wants
    the reasoning of a whole tool loop, or none of it).
    """
    ordered: bool = False
    """True if a result need not name its call but belongs to it by its position, so that a message
    is read only within its history.
    """
    signed: bool = False
    """True if reasoning is signed, and the codec can leave it out of a message (`Unbinding`)."""
    bound: bool = False
    """True if signed reasoning is valid only after the very messages that it was made after: after
    an edit it must be left out.
    """
    keeps_requests: bool = False
    """True if a compaction by the provider may keep the user's messages before it: if only such
    messages precede it, they are read.
    """
    twin: str = "~"
    """The text between a call id that was used twice and its number, in a new call id."""


@dataclass(frozen=True, slots=True)
class Media:
    """The known facts about an image, a recording or a file, without fetching it; else None.

    `width` and `height` are in pixels, `seconds` is the length of a recording, `pages` that of a
    document, `size` its length in bytes, `detail` the level the caller asked for (low, high, auto).
    """

    kind: MediaKind
    width: int | None = None
    height: int | None = None
    detail: str | None = None
    seconds: float | None = None
    pages: int | None = None
    size: int | None = None


class Part(NamedTuple):
    """One piece of a message's content; `text` is the text to count.

    If this part is the result of a call, or is inside one, `answers` is the id of the call. `media`
    has the facts about a part that is not text; its `text` then only identifies it (`digest`).
    """

    kind: PartKind
    text: str = ""
    answers: str | None = None
    media: Media | None = None


class Call(NamedTuple):
    """A tool call by the model; `arguments` is the JSON text as it was sent."""

    id: str
    name: str
    arguments: str


FINDING = "finding: "
"""The prefix of the memo keys for what a compaction derived from a message."""

THOUGHTS = frozenset({"reasoning", "sealed"})
"""Kinds of parts with a model's reasoning, readable or not."""

READABLE = frozenset({"text", "refusal", "result", "compaction"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message in neutral form.

    `memo` keeps derived values, such as token counts, by a key of the code that derived them; it is
    no part of the value. A compaction's findings have keys that begin with `FINDING`; they weigh
    many times as much as the text, and `Readings` drops them.
    """

    role: str
    parts: tuple[Part, ...] = ()
    calls: tuple[Call, ...] = ()
    name: str | None = None
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    results: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The ids of the calls whose results this message contains, in order."""
    is_compaction: bool = field(init=False, repr=False, compare=False)
    """True if it replaces all messages before it, by the provider's own compaction."""

    def __post_init__(self) -> None:
        found = [p.answers for p in self.parts if p.kind == "result" and p.answers is not None]
        object.__setattr__(self, "results", tuple(found))
        native = "compaction" in [p.kind for p in self.parts]
        object.__setattr__(self, "is_compaction", native)

    def forget_findings(self) -> None:
        """Drop the findings about the text; they are derived again when needed."""
        for key in [name for name in list(self.memo) if name.startswith(FINDING)]:
            self.memo.pop(key, None)

    @property
    def digest(self) -> bytes:
        """The hash that identifies the message: of role, text, ids and arguments (see `digest`)."""
        known: bytes | None = self.memo.get(_DIGEST)
        if known is None:
            known = self.memo[_DIGEST] = digest(self.role, self.parts, self.calls, self.name)
        return known

    @property
    def text(self) -> str:
        """The readable text of the message, joined by newlines: all but reasoning and media."""
        return "\n".join(p.text for p in self.parts if p.kind in READABLE)

    @property
    def characters(self) -> int:
        """The length of its texts and of the arguments of its calls together."""
        parts = sum([len(part.text) for part in self.parts])
        return parts + sum([len(call.arguments) for call in self.calls])

    @property
    def has_reasoning(self) -> bool:
        """True if it has a model's reasoning."""
        return any(p.kind in THOUGHTS for p in self.parts) and not self.is_compaction

    @property
    def is_system(self) -> bool:
        """True if it has instructions of the operator (role system or developer)."""
        return self.role in OPERATOR


def digest(
    role: str, parts: tuple[Part, ...], calls: tuple[Call, ...] = (), name: str | None = None
) -> bytes:
    """Return the digest of a message's lasting content, `DIGEST_BYTES` long.

    Content that changes between calls is left out: reasoning here, cache marks in the codecs.
    """
    h = blake2b(digest_size=DIGEST_BYTES)
    shown = [part for part in parts if part.kind not in THOUGHTS]
    fields = [role, name or "", str(len(shown))]
    for part in shown:
        fields += (part.kind, part.answers or "", part.text)
    for call in calls:
        fields += (call.id, call.name, call.arguments)
    for text in fields:
        data = text.encode("utf-8", "surrogatepass")
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.digest()


_DIGEST = "digest"
_REPLACED = "replaced"
_MEDIA = "media"
_PLACES = "places"
_TASK = "task"
_REQUEST = "request"


class HeldMedia(NamedTuple):
    """The number of images in a history, and the bytes of its media."""

    images: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation: the caller's objects and their neutral reading, position by position.

    `memo` keeps values derived from its first messages, by a key of the code that derived them, as
    pairs of a number of messages and the value. A codec that reads a longer history passes a copy
    on, so that only new messages are processed.
    """

    raws: tuple[Raw, ...]
    messages: tuple[Message, ...]
    rules: Rules
    memo: dict[str, tuple[int, Any]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.messages)

    def list_places(self) -> tuple[int, ...]:
        """Return the positions of its messages, in order; the numbers are reused."""
        done, known = self.memo.get(_PLACES, (0, ()))
        if done < len(self.messages):
            known = (*known, *range(done, len(self.messages)))
            self.memo[_PLACES] = (len(self.messages), known)
        return cast("tuple[int, ...]", known)

    def count_replaced(self) -> int:
        """Return how many of the first messages a compaction by the provider replaces.

        The provider reads none of them except operator text, and they take no tokens.
        """
        done, place = self.memo.get(_REPLACED, (0, 0))
        if done < len(self.messages):
            for index in range(done, len(self.messages)):
                if self.messages[index].is_compaction and not self._keeps_before(index):
                    place = index
            self.memo[_REPLACED] = (len(self.messages), place)
        return int(place)

    def measure_media(self) -> HeldMedia:
        """Return the number of its images, and the known bytes of all media."""
        done, known = self.memo.get(_MEDIA, (0, HeldMedia()))
        if done < len(self.messages):
            new = [p.media for m in self.messages[done:] for p in m.parts if p.media is not None]
            images = sum(held.kind == "image" for held in new)
            known = HeldMedia(known.images + images, known.size + sum(h.size or 0 for h in new))
            self.memo[_MEDIA] = (len(self.messages), known)
        return cast("HeldMedia", known)

    def is_replaced(self, index: int) -> bool:
        """Tell whether a compaction by the provider replaces a message."""
        return index < self.count_replaced() and not self.messages[index].is_system

    def _keeps_before(self, index: int) -> bool:
        before = self.messages[:index]
        return self.rules.keeps_requests and all(m.is_system or asks(m) for m in before)

    def task(self) -> int | None:
        """Return the position of the task: the first user message, or None without one."""
        done, place = self.memo.get(_TASK, (0, None))
        if place is None and done < len(self.messages):
            for index in range(done, len(self.messages)):
                if asks(self.messages[index]):
                    place = index
                    break
            self.memo[_TASK] = (len(self.messages), place)
        return cast("int | None", place)

    def request(self) -> int | None:
        """Return the position of the current request: the last user message, or None."""
        done, place = self.memo.get(_REQUEST, (0, None))
        if done < len(self.messages):
            for index in range(len(self.messages) - 1, done - 1, -1):
                if asks(self.messages[index]):
                    place = index
                    break
            self.memo[_REQUEST] = (len(self.messages), place)
        return cast("int | None", place)

    def has_answer(self) -> bool:
        """Tell whether the task has any answer before the current request."""
        task, request = self.task(), self.request()
        if task is None or request is None:
            return False
        return any(not m.is_system and m.role != "user" for m in self.messages[task:request])


def asks(message: Message) -> bool:
    """Tell whether a message is a person's turn: role user, not only results, not ours."""
    if message.role != "user" or _begins(message, _OURS):
        return False
    for part in message.parts:
        if part.kind != "result" and part.answers is None:
            return True
    return not message.parts


def summarises(message: Message) -> bool:
    """Tell whether a message is a summary that replaces dropped messages."""
    return _begins(message, SUMMARY_MARK)


_OURS: Final = (SUMMARY_MARK, SKILL_MARK)


def _begins(message: Message, mark: str | tuple[str, ...]) -> bool:
    """Tell whether a user message begins with a mark; tool results do not count.

    Anthropic's results are in the user role.
    """
    if message.role != "user" or not message.parts:
        return False
    first = message.parts[0]
    return first.kind == "text" and first.answers is None and first.text.startswith(mark)


class Codec(Protocol):
    """Reads and writes one dialect. The dialects implement it; no other code knows the format."""

    rules: Rules

    def read(self, messages: Sequence[Raw]) -> Transcript:
        """Read the caller's messages; raises MalformedHistoryError naming the position."""
        ...

    def rewrite(self, raw: Raw, parts: Mapping[int, str], calls: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new text in these parts and new arguments in these calls."""
        ...

    def author(self, role: str, text: str, answers: str | None = None) -> Raw:
        """Return a new message in this dialect."""
        ...

    def answer(self, raw: Raw, call: int, text: str, name: str) -> Raw:
        """Return an error result with `text` for the i-th call of `raw`, whose id is `name`."""
        ...

    def readdress(self, raw: Raw, ids: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` in which calls or results at these indexes have new call ids."""
        ...

    def mark(self, raw: Raw) -> Any:
        """Return the cache mark of a message, or None."""
        ...

    def add_mark(self, raw: Raw, mark: Any) -> Raw:
        """Return an authored message with a cache mark."""
        ...


class Joiner(Codec, Protocol):
    """Writes a dialect in which results share messages (`Rules.joins`)."""

    def gather(self, host: Raw | None, results: Sequence[tuple[Raw, int, str]]) -> Raw | None:
        """Return a message with these results first, then the other content of `host`.

        A result is the i-th of a message, with its new call id. If there is nothing to put in, it
        returns None. Without a host it returns a new user message.
        """
        ...


class Unbinding(Codec, Protocol):
    """Writes a dialect whose reasoning is signed (`Rules.signed`)."""

    def drop_reasoning(self, raw: Raw) -> Raw:
        """Return a copy of `raw` without reasoning; if nothing else is in it, a text says so.

        A message without reasoning is returned unchanged.
        """
        ...
