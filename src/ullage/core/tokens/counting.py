"""The size of a conversation in tokens: a best value and the band that holds the true value.

A `Counter` counts text. `Framing` says what a dialect adds around it. A `Scale` converts counts
for a server with an unknown vocabulary. `measure` combines the three. This module knows
no windows and loads no vocabularies (`ullage.counters` does).
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, islice
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from ullage.core.dialects.framing import Framing, ParallelFraming
from ullage.core.messages import media
from ullage.core.messages.size import Size
from ullage.core.messages.transcript import Media
from ullage.core.tokens.parallel import MARK, count_parallel, find_parallel, widen
from ullage.core.tokens.texts import MEDIA, list_texts
from ullage.core.values.frozen import replace
from ullage.core.values.shown import table

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from ullage.core.messages.transcript import Message, Part, Transcript

Basis = Literal["exact", "server", "calibrated", "estimate"]


class Counter(Protocol):
    """Count the tokens of text. `key` names the vocabulary: equal keys give equal counts."""

    key: str

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises for any string."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...


@dataclass(frozen=True, slots=True)
class Scale:
    """Convert tokens of the counter's vocabulary into tokens of the model's, with both edges."""

    low: float = 1.0
    best: float = 1.0
    high: float = 1.0

    def of(self, size: Size) -> Size:
        """Return `size` in the model's tokens, rounded outwards."""
        return Size(
            floor(size.low * self.low), round(size.best * self.best), ceil(size.high * self.high)
        )


EXACT: Final = Scale()


def _around(ratio: float, width: float) -> Scale:
    return Scale(ratio * (1 - width), ratio, ratio * (1 + width))


STRANGE: Final = 5.0
"""A ratio of reported to counted tokens that no vocabulary has: the highest ratio of a single kind
of text was 3.63 (docs/design/counting.md)."""

UNKNOWN_VOCABULARY: Final = Scale(0.75, 1.1, 1.6)
"""o200k as a stand-in for an unknown vocabulary. Over twelve families the totals of agent
transcripts were 0.98 to 1.47 times o200k's (docs/design/counting.md)."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Everything needed to measure a transcript for one model.

    `outside` has one entry per learned set of system text, tools and opening of the reply: the
    counted tokens, and the tokens of the model. `key` names everything that unscaled sizes depend
    on, so that a message can keep them. `seen` caches the sizes of tool lists.
    """

    counter: Counter
    framing: Framing = Framing()
    scale: Scale = EXACT
    basis: Basis = "exact"
    outside: tuple[tuple[int, float], ...] = ()
    seen: MutableMapping[str, Size] | None = field(default=None, compare=False, repr=False)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _make_key(self.counter.key, self.framing))


@lru_cache(maxsize=256)
def _make_key(vocabulary: str, framing: Framing) -> str:
    """Return the key under which unscaled sizes are kept."""
    f = framing
    sizes = (*f.call, *f.result, *f.tool, *f.tools)
    added = (f.message, f.role, f.name, f.slack, *sizes, f.image.name, f.loose, f.ids)
    more = (f.names_twice, *(f.parallel or ()))
    key = "/".join([vocabulary, *map(str, (*added, *more))])
    return key if f.parallel is None else key + MARK


@dataclass(frozen=True, slots=True)
class Count:
    """A number of tokens: `tokens` is the best value, `low` and `high` are the band.

    `basis` says where the number comes from: `exact` (the model's own vocabulary and framing),
    `server` (the server counted), `calibrated` or `estimate`. Converts to int.
    """

    tokens: int
    low: int
    high: int
    basis: Basis
    measured: Measure | None = field(default=None, repr=False, compare=False)

    def __int__(self) -> int:
        return self.tokens

    def _repr_html_(self) -> str:
        band = f"{self.low:,} to {self.high:,}"
        return table("tokens", {"tokens": self.tokens, "band": band, "basis": self.basis})

    @property
    def by_message(self) -> tuple[int, ...]:
        """The best value of each message, in order."""
        if self.measured is None:
            return ()
        ratio = self.measured.scale.best
        return tuple(round(size.best * ratio) for size in self.measured.sizes)


class Anchor(NamedTuple):
    """A server's report for the first messages of a transcript, and our count of the same messages.

    `tokens` is in the model's tokens, `raw` in the counter's own.
    """

    tokens: int
    raw: Size


@dataclass(frozen=True, slots=True)
class Measure:
    """A measured transcript: `fixed` is the system text outside the list, the tools and the reply.

    `fixed`, `total` (only the messages) and `sizes` are in the counter's own tokens; `count()` is
    in the model's. `extra` are tokens of the model in addition to the scaled count. An `anchor` is
    the server's own count; only later messages are then estimated. `rest` is the learned size of
    the fixed part in the model's tokens, if it differs from the count. The first `replaced`
    messages take no tokens, except operator text (`Transcript.count_replaced`).
    """

    fixed: Size
    total: Size
    messages: tuple[Message, ...]
    key: str
    scale: Scale
    basis: Basis
    extra: int = 0
    anchor: Anchor | None = None
    rest: Size | None = None
    replaced: int = 0

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The size of each message, in the counter's own tokens; 0 for replaced messages."""
        return tuple(_sizes(self.messages, 0, self.key, self.replaced))

    def raw(self) -> Size:
        """Return the total in the counter's own tokens."""
        return _sum(self.fixed, self.total)

    def count(self) -> Count:
        """Return the total in the model's tokens, with one best value per message."""
        raw = self.raw()
        if self.anchor is not None:
            return self._count_from_anchor(self.anchor, raw)
        size = self.scale.of(raw)
        if self.rest is not None:
            size = _sum(self.scale.of(self.total), self.rest)
        basis = "estimate" if self.basis == "exact" and raw.low != raw.high else self.basis
        low, best, high = size
        if self.extra:
            low, best, high = (max(edge + self.extra, 0) for edge in size)
        return Count(best, low, high, basis, self)

    def _count_from_anchor(self, anchor: Anchor, raw: Size) -> Count:
        tokens, then = anchor.tokens, anchor.raw
        since = Size(raw.low - then.low, raw.best - then.best, raw.high - then.high)
        if since.high == 0:
            return Count(tokens, tokens, tokens, "server", self)
        low, best, high = self.scale.of(since)
        return Count(tokens + best, tokens + low, tokens + high, "calibrated", self)

    def outside(self) -> Size:
        """Return the size of everything outside the messages, in the model's tokens."""
        if self.rest is not None:
            return self.rest
        low, best, high = (max(edge + self.extra, 0) for edge in self.scale.of(self.fixed))
        return Size(low, best, high)

    @property
    def fixed_edge(self) -> int:
        """The upper edge of the fixed part in counter tokens, from `rest` if it was learned."""
        return self.fixed.high if self.rest is None else ceil(self.rest.high / self.scale.high)

    def correct(self, anchor: Anchor, width: float) -> Measure:
        """Return the measure calibrated by the server's count of its first part, +/- `width`.

        Normally one ratio applies to everything. If the server counts fewer tokens than any
        vocabulary can give, it leaves parts out (a template without tools). If it counts far more,
        it adds its own text. In both cases the messages keep their ratio, and the fixed part takes
        the difference.
        """
        tokens, raw = anchor
        content, ratio = raw.best - self.fixed.best, tokens / max(raw.best, 1)
        if content > 0 and not self.scale.low <= ratio <= STRANGE:
            return self.split_by_ratio(anchor, min(self.scale.best, tokens / content), width)
        return replace(self, scale=_around(ratio, width), basis="calibrated", extra=0, rest=None)

    def split_by_ratio(self, anchor: Anchor, ratio: float, width: float) -> Measure:
        """Return the measure with this ratio for the messages; the difference goes outside them."""
        content = anchor.raw.best - self.fixed.best
        rest = _flat(max(round(anchor.tokens - ratio * content), 0))
        scale = _around(ratio, width)
        return replace(self, scale=scale, basis="calibrated", extra=0, rest=rest)

    def ceiling(self, tokens: int) -> int:
        """Return the most counter tokens (upper edge) that surely fit in `tokens` of the model."""
        tokens -= self.extra
        fits = floor(tokens / self.scale.high)
        rounded_up = ceil(fits * self.scale.high) > tokens  # 625 * 3.24 is 2025.0000000000002
        return fits - rounded_up

    def with_server_count(self, tokens: int) -> Measure:
        """Return the measure with the server's count of exactly this request."""
        return replace(self, anchor=Anchor(tokens, self.raw()))

    def of(self, transcript: Transcript, meter: Meter) -> Measure:
        """Return the measure of an edited transcript: the same fixed part, no anchor."""
        return replace(
            self,
            total=_total(transcript, meter),
            messages=transcript.messages,
            key=meter.key,
            anchor=None,
            replaced=transcript.count_replaced(),
        )


def measure(
    transcript: Transcript, meter: Meter, *, system: str | None = None, tools: Any = None
) -> Measure:
    """Measure a transcript; each message is counted once in its life (see `Message.memo`)."""
    total = _total(transcript, meter)
    fixed = _measure_fixed(meter, system, tools)
    extra = learned_extra(fixed, meter)
    if extra is None:
        extra = 0
    else:
        fixed = flatten(fixed)  # the learned size already includes the template's handling of tools
    return Measure(
        fixed,
        total,
        transcript.messages,
        meter.key,
        meter.scale,
        meter.basis,
        extra,
        replaced=transcript.count_replaced(),
    )


def learned_extra(fixed: Size, meter: Meter) -> int | None:
    """Return the tokens that reports add to the count of `fixed`, None if nothing was learned.

    `fixed` is everything outside the messages, in counter tokens. The result is in the model's
    tokens.
    """
    learned = dict(meter.outside).get(fixed.best)
    return None if learned is None else round(learned - meter.scale.best * fixed.best)


def flatten(size: Size) -> Size:
    """Return a size without its band: the best value at both edges."""
    return _flat(size.best)


def _total(transcript: Transcript, meter: Meter) -> Size:
    return _measure_new(transcript, meter).total


class _Known(NamedTuple):
    """The size of the first messages of a history, and the upper edge of each.

    A compaction by the provider replaced the first `replaced` of them.
    """

    total: Size
    edges: array[int]
    replaced: int = 0


def upper_edges(transcript: Transcript, meter: Meter) -> list[int]:
    """Return the upper edge of each message, in counter tokens; counts nothing twice.

    Sizes measured before come from one array, without reading any message.
    """
    return _measure_new(transcript, meter).edges.tolist()


def _measure_new(transcript: Transcript, meter: Meter) -> _Known:
    """Return the sizes of all messages; measures only messages that are new since the last call."""
    key, messages, replaced = meter.key, transcript.messages, transcript.count_replaced()
    done, known = transcript.memo.get(key) or (0, _Known(_NOTHING, array("q")))
    if known.replaced != replaced:  # the provider compacted since: replaced messages take no tokens
        done, known = 0, _Known(_NOTHING, array("q"), replaced)
    new = messages[done:] if done else messages
    if not new:
        return cast("_Known", known)
    unseen = [m for m in new if key not in m.memo]
    if unseen:
        _count(unseen, meter)
    count_parallel(messages, done, meter)
    sizes = _sizes(messages, done, key, max(replaced - done, 0))
    if len(sizes) == 1:
        came, edges = sizes[0], array("q", (sizes[0].high,))
    else:
        # Three passes: zip(*sizes) makes one iterator per message, which the collector then walks.
        low, best, edges = (array("q", [size[edge] for size in sizes]) for edge in range(3))
        came = Size(sum(low), sum(best), sum(edges))
    known = _Known(_sum(known.total, came), known.edges + edges, replaced)
    transcript.memo[key] = (len(messages), known)
    return known


def _sizes(messages: Sequence[Message], start: int, key: str, replaced: int) -> list[Size]:
    """Return the known size of each message from `start` on.

    Among the first `replaced` of these, only operator text has a size.
    """
    sizes: list[Size] = [m.memo[key] for m in (messages[start:] if start else messages)]
    if key.endswith(MARK):
        widen(sizes, messages, start, key)
    if replaced:
        first = messages[start : start + replaced]
        sizes[:replaced] = [sizes[i] if m.is_system else _NOTHING for i, m in enumerate(first)]
    return sizes


def _count(unseen: Sequence[Message], meter: Meter) -> None:
    """Count messages for the first time and keep the sizes in their memo."""
    texts = [list_texts(m) for m in unseen]
    counts = iter(meter.counter.count_many([text for each in texts for text in each]))
    pieces = meter.counter.key
    for m, each in zip(unseen, texts, strict=True):
        known = m.memo[pieces] = tuple(islice(counts, len(each)))
        m.memo[meter.key] = _message_size(m, iter(known), meter.framing)


_NOTHING: Final = Size(0, 0, 0)


def _sum(one: Size, other: Size) -> Size:
    return Size(one.low + other.low, one.best + other.best, one.high + other.high)


def part(measured: Measure, messages: int) -> Size:
    """Return the size of the fixed part and the first `messages` messages, in counter tokens."""
    if messages == len(measured.messages):
        return measured.raw()
    left = max(measured.replaced - messages, 0)
    since = _sizes(measured.messages, messages, measured.key, left)
    low, best, high = (sum(edges) for edges in zip(*since, strict=True))
    raw = measured.raw()
    return Size(raw.low - low, raw.best - best, raw.high - high)


def text_size(text: str, meter: Meter) -> int:
    """Return the upper edge, in counter tokens, of a message that holds just this text."""
    framing = meter.framing
    return framing.message + framing.role + framing.slack + meter.counter.count(text)


def prefix_sums(numbers: Sequence[int]) -> list[int]:
    """Return n + 1 sums: the i-th is the sum of the first i numbers."""
    return list(accumulate(numbers, initial=0))


class Share(NamedTuple):
    """The size of one piece of a message: the kind of its part or `call`, and the tool's name."""

    kind: str
    name: str | None
    size: Size


def shares(messages: Sequence[Message], meter: Meter) -> list[list[Share]]:
    """Return the sizes of the pieces of messages, in counter tokens; the first has the framing.

    The pieces of a message add up to its size in a `Measure`.
    """
    texts = [text for message in messages for text in list_texts(message)]
    counts = iter(meter.counter.count_many(texts))
    found = [_shares(message, counts, meter.framing) for message in messages]
    if meter.framing.parallel is not None:
        _count([m for m in messages if meter.key not in m.memo], meter)
        count_parallel(messages, 0, meter)
        for place in find_parallel(messages):
            alone, more = (messages[place].memo[meter.key + end] for end in ("", MARK))
            first = found[place][0]
            since = Size(*(of - one for of, one in zip(more, alone, strict=True)))
            found[place][0] = first._replace(size=_sum(first.size, since))
    return found


def _shares(message: Message, counts: Iterator[int], framing: Framing) -> list[Share]:
    """Take the counts of `list_texts(message)` from the iterator `counts`, piece by piece."""
    head = framing.message + framing.role
    found: list[Share] = []
    for part in message.parts:
        size = _media(part, framing)
        if size is None:
            size = _flat(next(counts))
        found.append(Share(part.kind, part.answers if part.kind == "result" else None, size))
    parallel = framing.parallel if len(message.calls) > 1 else None
    for call in message.calls:
        found.append(Share("call", call.name, _call(counts, framing, parallel)))
    if message.name:
        named = framing.name + next(counts)
        head += 0 if framing.names_twice and message.results else named
    for index, share in enumerate(found):
        if share.kind == "result":
            found[index] = share._replace(size=_sum(share.size, _result(counts, framing)))
    first = found[0] if found else Share("text", None, _NOTHING)
    framed = _sum(first.size, Size(head, head, head + framing.slack))
    framed = framed if parallel is None else _sum(framed, parallel.once)
    return [first._replace(size=framed), *found[1:]]


def _message_size(message: Message, counts: Iterator[int], framing: Framing) -> Size:
    """Take the counts of `list_texts(message)` from the iterator `counts` and add the framing."""
    low = framing.message + framing.role
    between = above = results = 0  # sums of best value and upper edge above `low`
    for part in message.parts:
        kind = part.kind
        if kind in MEDIA:
            size = _medium(part, framing)
            low += size.low
            between += size.best - size.low
            above += size.high - size.low
            continue
        low += next(counts)
        results += kind == "result"
    parallel = framing.parallel if len(message.calls) > 1 else None
    if parallel is not None:
        low += parallel.once.low
        between += parallel.once.best - parallel.once.low
        above += parallel.once.high - parallel.once.low
    for _ in message.calls:
        size = _call(counts, framing, parallel)
        low += size.low
        between += size.best - size.low
        above += size.high - size.low
    if message.name:
        named = framing.name + next(counts)
        low += 0 if framing.names_twice and message.results else named
    for _ in range(results):
        size = _result(counts, framing)
        low += size.low
        between += size.best - size.low
        above += size.high - size.low
    return Size(low, low + between, low + above + framing.slack)


def _call(counts: Iterator[int], framing: Framing, parallel: ParallelFraming | None) -> Size:
    """Return the size of a call: its name and arguments, and its id if it may be rendered."""
    name, arguments, id_ = next(counts), next(counts), next(counts)
    added, text = framing.call, name + arguments
    if parallel is not None:
        added = parallel.call
    again = name if framing.names_twice and parallel is None else 0
    least = 0 if framing.loose else text + added.low
    most = text + again + added.high
    return Size(least, text + again + added.best, most + id_ if framing.ids else most)


def _result(counts: Iterator[int], framing: Framing) -> Size:
    """Return the cost of a result in addition to its text."""
    added, id_ = framing.result, next(counts)
    return Size(added.low, added.best, added.high + id_ if framing.ids else added.high)


CIPHER: Final = (0.0, 3 / 16, 3 / 8)
"""Tokens per character of sealed base64: low, best, high. Three bytes take 4 characters; a token
has four bytes, at the upper edge two. A server may read none of it: reasoning of closed turns is
left out."""


def medium(part: Part, meter: Meter) -> Size:
    """Return the size of a part other than text, in counter tokens."""
    return _medium(part, meter.framing)


def _media(part: Part, framing: Framing) -> Size | None:
    return _medium(part, framing) if part.kind in MEDIA else None


def _medium(part: Part, framing: Framing) -> Size:
    """Return the size of a part other than text, by formula if one is published."""
    if part.kind == "image":
        return Size(*framing.image.size(part.media or Media("image")))
    if part.kind == "audio":
        return Size(*media.audio(part.media or Media("audio")))
    if part.kind == "sealed":
        low, best, high = (ceil(len(part.text) * tokens) for tokens in CIPHER)
        return Size(low, best, high)
    return Size(*media.document(part.media or Media("file")))


def _flat(tokens: int) -> Size:
    return Size(tokens, tokens, tokens)


def _measure_fixed(meter: Meter, system: str | None, tools: Any) -> Size:
    framing = meter.framing
    size = Size(framing.reply, framing.reply, framing.reply + framing.opening)
    if system:
        size = _sum(size, system_size(system, meter))
    if tools:
        size = _sum(size, _tools_size(tools, meter))
    return size


def system_size(system: str, meter: Meter) -> Size:
    """Return the size of a system prompt outside the messages, in counter tokens."""
    framing = meter.framing
    tokens = framing.message + framing.role + meter.counter.count(system)
    return Size(tokens, tokens, tokens + framing.slack)


def _tools_size(tools: Any, meter: Meter) -> Size:
    if meter.seen is None:
        return tool_sizes(tools, meter)[0]
    text = "".join([meter.key, "|", _json([_plain(tool) for tool in tools])])
    known = meter.seen.get(text)
    if known is None:
        known = meter.seen[text] = tool_sizes(tools, meter)[0]
    return known


def tool_sizes(tools: Any, meter: Meter) -> tuple[Size, list[tuple[str, Size]]]:
    """Return the size of all tool schemas together and of each, by name, in counter tokens.

    How providers show a schema to the model is not published: the band runs from half of its JSON
    text to a quarter more. The first number also includes the one-time cost of having any tool.
    """
    total, each = meter.framing.tools, []
    added = meter.framing.tool
    for tool in tools:
        plain = _plain(tool)
        tokens = meter.counter.count(_json(plain))
        least = 0 if meter.framing.loose else tokens // 2 + added.low
        size = Size(least, tokens + added.best, tokens + tokens // 4 + added.high)
        total = _sum(total, size)
        each.append((_tool_name(plain), size))
    return total, each


def _tool_name(tool: Any) -> str:
    fields = tool if isinstance(tool, Mapping) else {}
    body = fields.get("function")
    name = fields.get("name") or (body.get("name") if isinstance(body, Mapping) else None)
    return str(name or fields.get("type") or "?")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(tool: Any) -> Any:
    if isinstance(tool, Mapping):
        return tool
    dump = getattr(tool, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else tool
