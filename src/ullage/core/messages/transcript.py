"""A neutral, frozen view over the caller's own messages.

A codec (`core.dialects`) reads each message once into a `Message`; the caller's object rides along
untouched in `Transcript.raws`, position by position. Everything that decides (counting, laws,
policies) looks at `Message` and `Rules` only and so serves every dialect.

It knows nothing of wire formats, tokens or windows.
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
stands for all messages before its own: the provider made it, and reads nothing before it."""
DialectName = str
"""The name of a dialect: that of its folder in `core.dialects`."""
MediaKind = Literal["image", "audio", "file"]
Raw = Any
"""One message as the caller has it: a mapping or an SDK object. The JSON edge of the core."""

DIGEST_BYTES = 16
"""128 bits: two different prefixes share a digest with a chance below 1e-20 at 1e9 prefixes."""


OPERATOR = frozenset({"system", "developer"})
"""Roles whose messages carry instructions of the operator."""


SUMMARY_MARK = "[ullage: summary of "
"""How the text of a message begins that stands for messages left out."""

THOUGHT_TEXT = "[ullage: reasoning left out]"
"""What stands in a message that held nothing but reasoning."""

SKILL_MARK = "[ullage: skill "
"""How the text of a message begins that holds a skill."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Say what a dialect demands of a history; the laws read only this.

    `first_roles` are the roles that may open the conversation after system messages;
    `alternation` is True where user and assistant must take turns.
    """

    dialect: DialectName
    first_roles: frozenset[str] = frozenset({"user", "assistant"})
    alternation: bool = False
    split_calls: bool = False
    """Whether parallel calls of one response stand in messages of their own."""
    joins: bool = False
    """Whether messages of one role in a row are one turn. The results of a response then share
    the user message right behind it and come first in it; call ids are unique in the whole
    history; operator text inside the list stands behind a user message."""
    loops: bool = False
    """Whether all responses to one request of the user live or die together (a provider that wants
    the reasoning of a whole tool loop, or none of it)."""
    ordered: bool = False
    """Whether a result need not name its call and goes by its place behind it, so that a message
    is read in its history only."""
    signed: bool = False
    """Whether reasoning is signed, and its codec can leave it out of a message (`Unbinding`)."""
    bound: bool = False
    """Whether signed reasoning holds only behind the very messages that it was made behind: behind
    an edit it must go."""
    keeps_requests: bool = False
    """Whether a compaction by the provider may keep the user's messages verbatim before it: where
    nothing else stands there, they are read."""
    twin: str = "~"
    """What stands between a call id that was used twice and its number, in a new call id."""


@dataclass(frozen=True, slots=True)
class Media:
    """What is known of an image, a recording or a file without fetching it; None is unknown.

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
    """One piece of a message's content; `text` holds what is counted for it.

    `answers` is the id of the call whose result this part is, or is seen in. `media` says what is
    known of a part that is no text; its `text` then only tells one part from another (`digest`).
    """

    kind: PartKind
    text: str = ""
    answers: str | None = None
    media: Media | None = None


class Call(NamedTuple):
    """A tool call that the model asked for; `arguments` is the JSON text as it was sent."""

    id: str
    name: str
    arguments: str


FINDING = "finding: "
"""The prefix of the keys under which a memo holds what a compaction worked out of a message."""

THOUGHTS = frozenset({"reasoning", "sealed"})
"""Parts that hold what a model thought, to be read or not."""

READABLE = frozenset({"text", "refusal", "result", "compaction"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message in neutral form.

    `memo` keeps derived numbers, such as token counts, by the key of whoever derived them; it is
    no part of the value. What is worked out of the text for a compaction stands there under keys
    that begin with `FINDING`; it weighs many times as much as the text, and `Readings` lets go of
    it.
    """

    role: str
    parts: tuple[Part, ...] = ()
    calls: tuple[Call, ...] = ()
    name: str | None = None
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    results: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The ids of the calls that this message brings results for, in order."""
    is_compaction: bool = field(init=False, repr=False, compare=False)
    """Whether it stands for all messages before it, by the provider's own compaction."""

    def __post_init__(self) -> None:
        found = [p.answers for p in self.parts if p.kind == "result" and p.answers is not None]
        object.__setattr__(self, "results", tuple(found))
        native = "compaction" in [p.kind for p in self.parts]
        object.__setattr__(self, "is_compaction", native)

    def forget_findings(self) -> None:
        """Let go of what was worked out of the text: it is worked out again where it is needed."""
        for key in [name for name in list(self.memo) if name.startswith(FINDING)]:
            self.memo.pop(key, None)

    @property
    def digest(self) -> bytes:
        """What the message is known by: role, text, ids and arguments (see `digest`)."""
        known: bytes | None = self.memo.get(_DIGEST)
        if known is None:
            known = self.memo[_DIGEST] = digest(self.role, self.parts, self.calls, self.name)
        return known

    @property
    def text(self) -> str:
        """What can be read in the message, joined by newlines: all but reasoning and media."""
        return "\n".join(p.text for p in self.parts if p.kind in READABLE)

    @property
    def characters(self) -> int:
        """How long its texts and the arguments of its calls are together."""
        parts = sum([len(part.text) for part in self.parts])
        return parts + sum([len(call.arguments) for call in self.calls])

    @property
    def has_reasoning(self) -> bool:
        """Whether it holds what a model thought."""
        return any(p.kind in THOUGHTS for p in self.parts) and not self.is_compaction

    @property
    def is_system(self) -> bool:
        """Whether the message carries instructions of the operator (system or developer)."""
        return self.role in OPERATOR


def digest(
    role: str, parts: tuple[Part, ...], calls: tuple[Call, ...] = (), name: str | None = None
) -> bytes:
    """Return the digest of what makes a conversation in a message, `DIGEST_BYTES` long.

    What moves between calls is left out: reasoning; codecs leave out cache marks.
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
    """The images of a history, and the bytes of its media."""

    images: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation: the caller's objects and their neutral reading, position by position.

    `memo` keeps numbers derived from its first messages, by the key of whoever derived them, as
    pairs of how many messages and the number. A codec that reads a longer history hands a copy
    on, so that only what is new is worked out.
    """

    raws: tuple[Raw, ...]
    messages: tuple[Message, ...]
    rules: Rules
    memo: dict[str, tuple[int, Any]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.messages)

    def list_places(self) -> tuple[int, ...]:
        """Return the positions of its messages, in order; numbers that were made are used again."""
        done, known = self.memo.get(_PLACES, (0, ()))
        if done < len(self.messages):
            known = (*known, *range(done, len(self.messages)))
            self.memo[_PLACES] = (len(self.messages), known)
        return cast("tuple[int, ...]", known)

    def count_replaced(self) -> int:
        """Return how many of the first messages a compaction by the provider stands for.

        It reads none of them but operator text, and they take no tokens.
        """
        done, place = self.memo.get(_REPLACED, (0, 0))
        if done < len(self.messages):
            for index in range(done, len(self.messages)):
                if self.messages[index].is_compaction and not self._keeps_before(index):
                    place = index
            self.memo[_REPLACED] = (len(self.messages), place)
        return int(place)

    def measure_media(self) -> HeldMedia:
        """Return how many images it holds, and the bytes of all media, as far as they are known."""
        done, known = self.memo.get(_MEDIA, (0, HeldMedia()))
        if done < len(self.messages):
            new = [p.media for m in self.messages[done:] for p in m.parts if p.media is not None]
            images = sum(held.kind == "image" for held in new)
            known = HeldMedia(known.images + images, known.size + sum(h.size or 0 for h in new))
            self.memo[_MEDIA] = (len(self.messages), known)
        return cast("HeldMedia", known)

    def is_replaced(self, index: int) -> bool:
        """Tell whether a compaction by the provider stands for a message."""
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
        """Tell whether anything was said to the task yet, before the current request."""
        task, request = self.task(), self.request()
        if task is None or request is None:
            return False
        return any(not m.is_system and m.role != "user" for m in self.messages[task:request])


def asks(message: Message) -> bool:
    """Tell whether a message is a person's turn: role user, more than results, written by them."""
    if message.role != "user" or _begins(message, _OURS):
        return False
    for part in message.parts:
        if part.kind != "result" and part.answers is None:
            return True
    return not message.parts


def summarises(message: Message) -> bool:
    """Tell whether a message is a summary that stands for messages left out."""
    return _begins(message, SUMMARY_MARK)


_OURS: Final = (SUMMARY_MARK, SKILL_MARK)


def _begins(message: Message, mark: str | tuple[str, ...]) -> bool:
    """Tell whether a message of the user begins with a mark; a tool may say what it likes.

    Anthropic's results stand in the user role.
    """
    if message.role != "user" or not message.parts:
        return False
    first = message.parts[0]
    return first.kind == "text" and first.answers is None and first.text.startswith(mark)


class Codec(Protocol):
    """Read and write one dialect. The wire rooms implement it; nothing else knows the format."""

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
        """Return a copy of `raw` in which the i-th call, or the i-th result, has a new call id."""
        ...

    def mark(self, raw: Raw) -> Any:
        """Return the cache mark that a message carries, or None."""
        ...

    def add_mark(self, raw: Raw, mark: Any) -> Raw:
        """Return an authored message with a cache mark."""
        ...


class Joiner(Codec, Protocol):
    """Write a dialect in which results share messages (`Rules.joins`)."""

    def gather(self, host: Raw | None, results: Sequence[tuple[Raw, int, str]]) -> Raw | None:
        """Return a message with these results first, then what `host` holds beside results.

        A result is the i-th of a message, and the call id it is to have. Without anything to hold
        there is no message: None. Without a host it is a new user message.
        """
        ...


class Unbinding(Codec, Protocol):
    """Write a dialect whose reasoning is signed (`Rules.signed`)."""

    def drop_reasoning(self, raw: Raw) -> Raw:
        """Return a copy of `raw` without reasoning; one that holds nothing else says so in text.

        A message without reasoning comes back as it is.
        """
        ...
