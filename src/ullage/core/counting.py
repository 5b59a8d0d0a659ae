"""How big a conversation is, in tokens: a best value and the band that holds the truth.

A `Counter` counts text; `Framing` says what a dialect adds around it; a `Scale` carries what was
learned about a server whose vocabulary is not at hand. `measure` puts the three together. It
knows nothing of windows, and does not load vocabularies (`ullage.counters` does).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, floor
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.transcript import Message, Part, Transcript

Basis = Literal["exact", "server", "calibrated", "estimate"]


class Counter(Protocol):
    """Count the tokens of text. `key` names the vocabulary, the same name for the same counts."""

    key: str

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises for any string."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...


class Size(NamedTuple):
    """A number of tokens: lower edge, best value, upper edge."""

    low: int
    best: int
    high: int


@dataclass(frozen=True, slots=True)
class Scale:
    """Turn tokens of the counter's vocabulary into tokens of the model's, with both edges."""

    low: float = 1.0
    best: float = 1.0
    high: float = 1.0

    def of(self, size: Size) -> Size:
        """Return `size` in the model's tokens, rounded outwards."""
        return Size(
            floor(size.low * self.low), round(size.best * self.best), ceil(size.high * self.high)
        )


EXACT: Final = Scale()

UNKNOWN_VOCABULARY: Final = Scale(0.75, 1.1, 1.6)
"""o200k as a stand-in for a vocabulary that is not at hand. Over twelve families the totals of
agent transcripts were 0.98 to 1.47 times o200k's (docs/design/counting.md)."""


@dataclass(frozen=True, slots=True)
class Framing:
    """Tokens that a dialect adds around texts.

    Message, role, name and reply figures are those OpenAI publishes for its chat models (OpenAI
    cookbook, "How to count tokens with tiktoken"); for text-only messages they are exact. What is
    added around calls, results, tools and media is not published, so it is a band.
    """

    message: int = 3
    role: int = 1
    name: int = 1
    reply: int = 3
    call: Size = Size(0, 6, 16)
    result: Size = Size(0, 2, 8)
    tool: Size = Size(4, 12, 24)
    image: Size = Size(85, 765, 1445)
    slack: int = 0
    """Tokens a message may cost beyond the above where the template is unknown."""


CHAT: Final = Framing()
UNKNOWN_TEMPLATE: Final = Framing(message=4, slack=4)


@dataclass(frozen=True, slots=True)
class Meter:
    """Everything that is needed to measure a transcript for one model."""

    counter: Counter
    framing: Framing = CHAT
    scale: Scale = EXACT
    basis: Basis = "exact"

    @property
    def key(self) -> str:
        """Name what unscaled sizes depend on, so that they can be kept beside a message."""
        f = self.framing
        added = (f.message, f.role, f.name, f.slack, *f.call, *f.result, *f.image)
        return "/".join([self.counter.key, *map(str, added)])


@dataclass(frozen=True, slots=True)
class Count:
    """How many tokens something takes: `tokens` is the best value, `low` and `high` the band.

    `basis` says where the number stems from: `exact` (the model's own vocabulary and framing),
    `server` (the server counted), `calibrated` or `estimate`. Converts to int. `sizes` and `ratio`
    are what `by_message` is worked out from.
    """

    tokens: int
    low: int
    high: int
    basis: Basis
    sizes: tuple[Size, ...] = field(default=(), repr=False)
    ratio: float = field(default=1.0, repr=False)

    def __int__(self) -> int:
        return self.tokens

    @property
    def by_message(self) -> tuple[int, ...]:
        """The best value of each message, in order."""
        return tuple(round(size.best * self.ratio) for size in self.sizes)


@dataclass(frozen=True, slots=True)
class Measure:
    """A measured transcript: `fixed` for system text outside the list, tools and the reply.

    `fixed` and `sizes` are in the counter's own tokens, `count()` is in the model's. `reported` is
    the server's own count of the whole, in the model's tokens, where it was asked.
    """

    fixed: Size
    sizes: tuple[Size, ...]
    scale: Scale
    basis: Basis
    reported: int | None = None

    def raw(self) -> Size:
        """Return the whole in the counter's own tokens."""
        if not self.sizes:
            return self.fixed
        low, best, high = (sum(map(edge, self.sizes)) for edge in _EDGES)
        return Size(self.fixed.low + low, self.fixed.best + best, self.fixed.high + high)

    def count(self) -> Count:
        """Return the whole in the model's tokens; one best value a message."""
        raw = self.raw()
        total = self.scale.of(raw)
        sizes, ratio = self.sizes, self.scale.best
        if self.reported is not None:
            reported = self.reported
            return Count(reported, reported, reported, "server", sizes, ratio)
        basis = "estimate" if self.basis == "exact" and raw.low != raw.high else self.basis
        return Count(total.best, total.low, total.high, basis, sizes, ratio)

    def ceiling(self, tokens: int) -> int:
        """Return the most counter tokens (upper edge) that surely fit in `tokens` of the model."""
        fits = floor(tokens / self.scale.high)
        rounded_up = ceil(fits * self.scale.high) > tokens  # 625 * 3.24 is 2025.0000000000002
        return fits - rounded_up


def measure(
    transcript: Transcript, meter: Meter, *, system: str | None = None, tools: Any = None
) -> Measure:
    """Measure a transcript; each message is counted once in its life (see `Message.memo`)."""
    key = meter.key
    messages = transcript.messages
    new = [m for m in messages if key not in m.memo]
    if new:
        texts = [text for m in new for text in _texts(m)]
        counts = iter(meter.counter.count_many(texts))
        for m in new:
            m.memo[key] = _message_size(m, counts, meter.framing)
    sizes = tuple([m.memo[key] for m in messages])
    return Measure(_fixed(meter, system, tools), sizes, meter.scale, meter.basis)


def text_size(text: str, meter: Meter) -> int:
    """Return the upper edge, in counter tokens, of a message that holds just this text."""
    framing = meter.framing
    return framing.message + framing.role + framing.slack + meter.counter.count(text)


_EDGES: Final = tuple(itemgetter(edge) for edge in range(3))


def prefix_sums(numbers: Sequence[int]) -> list[int]:
    """Return n + 1 sums: the i-th is that of the first i numbers."""
    return list(accumulate(numbers, initial=0))


def _texts(message: Message) -> list[str]:
    """Return the texts of a message in the order in which `_message_size` takes their counts."""
    texts = [p.text for p in message.parts if p.kind not in ("image", "audio", "file")]
    for call in message.calls:
        texts += (call.name, call.arguments, call.id)
    if message.name:
        texts.append(message.name)
    texts += [p.answers or "" for p in message.parts if p.kind == "result"]
    return texts


def _message_size(message: Message, counts: Any, framing: Framing) -> Size:
    """Take the counts of `_texts(message)` off the iterator `counts` and add the framing."""
    size = framing.message + framing.role
    band_low = band_best = band_high = 0
    for part in message.parts:
        media = _media(part, framing)
        if media is None:
            size += next(counts)
        else:
            band_low, band_best, band_high = _add((band_low, band_best, band_high), media)
    for _ in message.calls:
        size += next(counts) + next(counts)
        identity = next(counts)
        call = framing.call
        band_low, band_best = band_low + call.low, band_best + call.best
        band_high += call.high + identity
    if message.name:
        size += framing.name + next(counts)
    for part in message.parts:
        if part.kind == "result":
            identity = next(counts)
            result = framing.result
            band_low, band_best = band_low + result.low, band_best + result.best
            band_high += result.high + identity
    return Size(size + band_low, size + band_best, size + band_high + framing.slack)


def _media(part: Part, framing: Framing) -> Size | None:
    """Return the size of a part that is no text: images by formula, others by their bytes."""
    if part.kind == "image":
        return framing.image
    if part.kind in ("audio", "file"):
        return Size(0, len(part.text) // 8, len(part.text))
    return None


def _add(total: tuple[int, int, int], size: Size) -> tuple[int, int, int]:
    return (total[0] + size.low, total[1] + size.best, total[2] + size.high)


def _fixed(meter: Meter, system: str | None, tools: Any) -> Size:
    framing = meter.framing
    low = best = high = framing.reply
    if system:
        tokens = framing.message + framing.role + meter.counter.count(system)
        low, best, high = low + tokens, best + tokens, high + tokens + framing.slack
    for tool in tools or ():
        text = json.dumps(_plain(tool), ensure_ascii=False, default=str)
        tokens = meter.counter.count(text)
        low += tokens // 2 + framing.tool.low
        best += tokens + framing.tool.best
        high += tokens + tokens // 4 + framing.tool.high
    return Size(low, best, high)


def _plain(tool: Any) -> Any:
    if isinstance(tool, Mapping):
        return tool
    dump = getattr(tool, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else tool
