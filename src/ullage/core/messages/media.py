"""Images, recordings and documents: their sizes by their first bytes, and their cost in tokens.

`describe` reads headers and decodes no picture. `image_rule`, `audio` and `document` compute a band
(low, best, high) of tokens by the providers' published formulas, which changed more than once: if
two versions were published, the band covers both. Unknown facts make a wide band, never an error.
This module fetches nothing, and knows nothing of messages, counters or windows.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, floor, sqrt
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from ullage.core.messages.transcript import Media, MediaKind

Band = tuple[int, int, int]
"""Tokens: lower edge, best value, upper edge."""

HEAD_BYTES: Final = 256 * 1024
"""Bytes of an image or a recording that are decoded. A JPEG has its size after its metadata, in
segments of at most 64 kB each. Real cameras write one or two.
"""

DOCUMENT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a document that are decoded. The number of pages of a longer one is unknown, unless its
first bytes state it (as in a linearised PDF).
"""

SHORT: Final = 200
"""Sources up to this length, in characters, are their own identity."""

# ── facts from the source itself ────────────────────────────────────────────────────────────────

_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/]")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]{2,}={0,2}\s*")
_BASE64_FOR_URLS: Final = re.compile(r"[\w\-\s]{256}", re.ASCII)
_FOR_URLS: Final = str.maketrans("-_", "+/")


def describe(kind: MediaKind, source: str, *, detail: str | None = None) -> Media:
    """Return the facts about a source without fetching it; never raises.

    `source` is an http(s) URL (nothing is known), a `data:` URL, bare base64 text, or "". At most
    `HEAD_BYTES` of it (`DOCUMENT_BYTES` of a file) are decoded. `size` is computed from the length
    of the base64 text.
    """
    encoded = _read_base64(source)
    if not encoded:
        return Media(kind, detail=detail)
    size = _decoded_length(encoded)
    width = height = seconds = pages = None
    head = _head(encoded, DOCUMENT_BYTES if kind == "file" else HEAD_BYTES)
    if kind == "image":
        width, height = _dimensions(head) or (None, None)
    elif kind == "audio":
        seconds = _wav_seconds(head, size)
    else:
        pages = _pdf_pages(head, whole=size <= len(head))
    return Media(kind, width, height, detail, seconds, pages, size)


def identity(source: str) -> str:
    """Return a short text that identifies a source.

    A short URL or id is returned unchanged; other sources give `blake2b:` and a digest of 128 bits
    in hex.
    """
    inline = source[:5].lower() == "data:" or source.startswith("blake2b:")
    if len(source) <= SHORT and not inline:
        return source
    return "blake2b:" + blake2b(source.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _read_base64(source: str) -> str:
    """Return the base64 text of a source, or "" if it has none."""
    if source[:5].lower() == "data:":
        header, comma, data = source[5 : 5 + HEAD_BYTES].partition(",")
        inline = bool(comma) and header.rstrip().lower().endswith(";base64")
        return source[5 + len(header) + 1 :] if inline and data else ""
    start = source[:256]
    plain = _BASE64.fullmatch(start) or _BASE64_FOR_URLS.fullmatch(start)
    return source if plain else ""


def _decoded_length(encoded: str) -> int:
    breaks = sum(map(encoded.count, "\r\n "))
    padding = encoded[-4:].count("=")
    return max(0, (len(encoded) - breaks - padding) * 3 // 4)


def _head(encoded: str, most: int) -> bytes:
    """Decode up to `most` bytes; characters outside base64 are skipped, an odd end is cut off."""
    text = encoded[: most // 3 * 4 + 4].translate(_FOR_URLS)
    letters = _NOT_BASE64.sub("", text)
    if len(letters) % 4 == 1:
        letters = letters[:-1]
    return a2b_base64(letters + "=" * (-len(letters) % 4))


def _number(data: bytes, at: int, length: int, order: Literal["little", "big"] = "little") -> int:
    """Return an unsigned number, or 0 if the data ends too early."""
    piece = data[at : at + length]
    return int.from_bytes(piece, order) if len(piece) == length else 0


def _dimensions(head: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels from the header of an image."""
    width = height = 0
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        width, height = _number(head, 16, 4, "big"), _number(head, 20, 4, "big")
    elif head.startswith(b"\xff\xd8"):
        width, height = _jpeg(head)
    elif head.startswith((b"GIF87a", b"GIF89a")):
        width, height = _number(head, 6, 2), _number(head, 8, 2)
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        width, height = _webp(head)
    elif head.startswith(b"BM"):
        width, height = _bmp(head)
    return (width, height) if width and height else None


_SIZED: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The markers SOF0 to SOF15 of a JPEG; C4, C8 and CC are tables (ITU-T T.81, table B.1)."""

_BARE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a segment: TEM, the restarts, SOI."""


def _jpeg(head: bytes) -> tuple[int, int]:
    at = 2
    while head[at : at + 1] == b"\xff":
        marker = _number(head, at + 1, 1)
        if marker in _SIZED:
            return _number(head, at + 7, 2, "big"), _number(head, at + 5, 2, "big")
        if marker == 0xFF:  # a marker may be preceded by any number of fill bytes
            at += 1
        elif marker in _BARE:
            at += 2
        else:
            length = _number(head, at + 2, 2, "big")
            if marker in (0x00, 0xD9, 0xDA) or length < 2:  # the picture, or its end, came first
                break
            at += 2 + length
    return 0, 0


def _webp(head: bytes) -> tuple[int, int]:
    chunk = head[12:16] if len(head) >= 30 else b""
    if chunk == b"VP8X":
        return _number(head, 24, 3) + 1, _number(head, 27, 3) + 1
    if chunk == b"VP8L" and head[20:21] == b"\x2f":
        bits = _number(head, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        return _number(head, 26, 2) & 0x3FFF, _number(head, 28, 2) & 0x3FFF
    return 0, 0


def _bmp(head: bytes) -> tuple[int, int]:
    if _number(head, 14, 4) == 12:
        return _number(head, 18, 2), _number(head, 20, 2)
    height = _number(head, 22, 4)
    return _number(head, 18, 4), min(height, 2**32 - height)  # negative: the top row comes first


def _wav_seconds(head: bytes, size: int) -> float | None:
    """Return the length of a WAV recording; other formats do not state it at the front."""
    if not head.startswith(b"RIFF") or head[8:12] != b"WAVE":
        return None
    at, rate = 12, 0
    while at + 8 <= len(head):
        name, length = head[at : at + 4], _number(head, at + 4, 4)
        at += 8
        if name == b"fmt ":
            rate = _number(head, at + 8, 4)
        elif name == b"data":
            # A recording that was streamed states no length, or the largest.
            rest = max(0, size - at)
            return (min(length, rest) or rest) / rate if rate else None
        at += length + length % 2
    return None


_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_LINEARISED: Final = re.compile(rb"/Linearized\b[^>]{0,400}?/N\s+(\d{1,6})\b")


def _pdf_pages(head: bytes, *, whole: bool) -> int | None:
    """Return the number of pages of a PDF, or None if it is unknown.

    A linearised file states it in its first object. Otherwise the page objects are counted; this
    needs the whole file, and fails if objects are in compressed object streams.
    """
    if not head.startswith(b"%PDF-"):
        return None
    stated = _LINEARISED.search(head, 0, 1024)
    if stated:
        return int(stated[1]) or None
    if not whole or b"/ObjStm" in head:
        return None
    return len(_PAGE.findall(head)) or None


# ── images ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ImageRule:
    """The formula for a model's image tokens; this one gives the same band for every image.

    `unseen` is the band of an image of unknown dimensions: from the smallest to the largest that
    the rule allows, with a typical one as best value.
    """

    name: str
    unseen: Band = (64, 1_024, 6_404)

    def size(self, media: Media) -> Band:
        """Return the tokens of an image: low, best, high."""
        detail = (media.detail or "auto").lower()
        if not media.width or not media.height or media.width < 0 or media.height < 0:
            return self._count_unknown_size(detail)
        return self._count_known_size(media.width, media.height, detail)

    def _count_unknown_size(self, detail: str) -> Band:  # noqa: ARG002 - for the rules that use it
        return self.unseen

    def _count_known_size(self, width: int, height: int, detail: str) -> Band:  # noqa: ARG002 - as above
        return self._count_unknown_size(detail)


UNKNOWN_IMAGE: Final = ImageRule("unknown")
"""The rule of a model that no other rule names. 64 is the least that any rule here gives by default
(Gemini 2.5, low), 6,404 the most of an open model (Llama 3.2 Vision, four tiles of 1,601;
Together's vision page, 2026). gpt-4o-mini and a detail of `original` exceed it; they have rules
below.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles(ImageRule):
    """OpenAI's older models: `base` tokens, and `tile` tokens for every square of 512 px.

    The image is scaled down to 2,048 px, and to 768 px on its short side. Detail low is `base`.
    "Images and vision" guide of OpenAI, September 2026. Guides until early 2026 scaled to 768 px
    without saying down; the upper edge is that of an image scaled up.
    """

    base: int
    tile: int

    def _count_unknown_size(self, detail: str) -> Band:
        if detail == "low":
            return self.base, self.base, self.base
        return self.base + self.tile, self.base + 4 * self.tile, self.base + 8 * self.tile

    def _count_known_size(self, width: int, height: int, detail: str) -> Band:
        if detail == "low":
            return self._count_unknown_size(detail)
        width, height = _within(width, height, 2048)
        short, long = sorted((width, height))
        scaled = max(1, long * 768 // short)
        tiles = _cells(768, scaled, 512) if short > 768 else _cells(short, long, 512)
        most = max(tiles, _cells(768, min(2048, scaled), 512))
        return _band(self.base + n * self.tile for n in (tiles, tiles, most))


class Limit(NamedTuple):
    """The limits of a scaled image: pixels on its longer side, and patches of 32 px."""

    pixels: int
    patches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches(ImageRule):
    """OpenAI's newer models: patches of 32 px times a factor, rounded up.

    The image is scaled down to a limit that depends on the detail. "Images and vision" guide of
    OpenAI, September 2026. `once` holds factors and budgets that the guide stated for the model at
    other times in 2026, or that were measured; the edges cover them.
    """

    factor: float
    low: Limit
    high: Limit
    original: Limit
    auto: Limit
    once: tuple[tuple[float, int], ...] = ()

    def _ways(self, detail: str) -> Iterator[tuple[float, Limit]]:
        now = {"low": self.low, "high": self.high, "original": self.original}
        limit = now.get(detail, self.auto)
        yield self.factor, limit
        for factor, patches in self.once:
            yield factor, Limit(limit.pixels, patches)

    def _count_unknown_size(self, detail: str) -> Band:
        typical = self._count_known_size(1024, 1024, detail)[1]
        most = [
            ceil(factor * min(limit.patches, _cells(limit.pixels, limit.pixels, 32)))
            for factor, limit in self._ways(detail)
        ]
        return ceil(self.factor), typical, max(most) + 1

    def _count_known_size(self, width: int, height: int, detail: str) -> Band:
        sizes = [ceil(f * _patches(width, height, limit)) for f, limit in self._ways(detail)]
        return min(sizes), sizes[0], max(sizes) + 1  # the guide: billing may differ by one


def _patches(width: int, height: int, limit: Limit) -> int:
    """Return the patches of an image, by the steps and roundings of OpenAI's guide."""
    width, height = _within(width, height, limit.pixels)
    count = _cells(width, height, 32)
    if count <= limit.patches:
        return count
    shrink = sqrt(32 * 32 * limit.patches / (width * height))
    across, down = width * shrink / 32, height * shrink / 32
    shrink *= min(floor(across) / across, floor(down) / down)
    resized = _cells(max(1, floor(width * shrink)), max(1, floor(height * shrink)), 32)
    return min(limit.patches, resized)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisualTokens(ImageRule):
    """Anthropic: one token per 28 px patch, scaled down to `edge` pixels and `most` tokens.

    "Vision" page of Anthropic's platform documentation, 2026. Its earlier formula, width * height /
    750 of the scaled image, is the other edge.
    """

    edge: int
    most: int

    def _count_known_size(self, width: int, height: int, detail: str) -> Band:  # noqa: ARG002 - it has none
        longest, least = min(self.edge, max(width, height)), 1
        while least < longest:
            middle = (least + longest + 1) // 2
            if _cells(*_within(width, height, middle), 28) <= self.most:
                least = middle
            else:
                longest = middle - 1
        width, height = _within(width, height, least)
        tokens = _cells(width, height, 28)
        area = width * height / 750
        return min(tokens, floor(area)), tokens, max(tokens, ceil(area))


@dataclass(frozen=True, slots=True)
class Crops(ImageRule):
    """Gemini 2: 258 tokens, or 258 for every tile of an image over 384 px.

    "Image understanding" page of the Gemini API, September 2026: the side of a tile is about two
    thirds of the short side (960 x 540 makes 3 * 2 tiles). The same page mentions 768 px tiles, and
    the page on media resolution 256 tokens (64 at low) and about 2,048 for crops. The band covers
    all three. A side below 256 px counts as 256: narrow strips would give hundreds of tiles, which
    no page confirms.
    """

    def _count_known_size(self, width: int, height: int, detail: str) -> Band:
        least = 64 if detail == "low" else 256
        if max(width, height) <= 384:
            return least, 258, 258
        side = max(256, floor(min(width, height) / 1.5))
        tiles = _cells(width, height, side)
        return least, 258 * tiles, max(258 * max(tiles, _cells(width, height, 768)), 2_306)


@dataclass(frozen=True, slots=True)
class Levels(ImageRule):
    """Gemini 3: about as many tokens as the resolution level allows, whatever the dimensions.

    "Media resolution" page of the Gemini API, 2026: 280 low, 560 medium, 1,120 high and default,
    2,240 ultra high. The page calls them approximate maxima: the band is from half to a tenth more.
    """

    def _count_unknown_size(self, detail: str) -> Band:
        levels = {"low": 280, "medium": 560, "ultra_high": 2240}
        tokens = levels.get(detail, 1120)
        return tokens // 2, tokens, tokens + tokens // 10


def _band(numbers: Iterable[int]) -> Band:
    """Return three numbers as a band."""
    low, best, high = numbers
    return low, best, high


def _cells(width: int, height: int, side: int) -> int:
    """Return the number of squares with this side that cover an area."""
    return -(-width // side) * -(-height // side)


def _within(width: int, height: int, pixels: int) -> tuple[int, int]:
    """Return the size of an image scaled down so that its longer side has at most `pixels`."""
    longer = max(width, height)
    if longer <= pixels:
        return width, height
    return max(1, round(width * pixels / longer)), max(1, round(height * pixels / longer))


_MOST_PATCHES: Final = 30_000
"""OpenAI's guide: an image that takes more is refused, not scaled down."""

_SMALL: Final = Limit(512, 2_500)
_NEW: Final = Limit(2048, 2_500)
_OLD: Final = Limit(2048, 6_144)
_LARGE: Final = Limit(6000, 10_000)
_WHOLE: Final = Limit(65_535, _MOST_PATCHES)


def _tiles(name: str, base: int, tile: int) -> Tiles:
    return Tiles(name, base=base, tile=tile)


def _make_patches(
    name: str, factor: float, limits: Sequence[Limit], *once: tuple[float, int]
) -> Patches:
    low, high, original, auto = limits
    return Patches(name, factor=factor, low=low, high=high, original=original, auto=auto, once=once)


_WIDE: Final = (_SMALL, _NEW, _WHOLE, _WHOLE)
_ASTRA: Final = (_SMALL, Limit(65_535, 2_500), _WHOLE, _WHOLE)
_SAME: Final = (_OLD, _OLD, _OLD, _OLD)
_BY_54: Final = (_OLD, _NEW, _LARGE, _NEW)
_GPT_4O: Final = _tiles("openai-tiles-85-170", 85, 170)
_GPT_5: Final = _tiles("openai-tiles-70-140", 70, 140)
_O_SERIES: Final = _tiles("openai-tiles-75-150", 75, 150)
_GPT_56: Final = _make_patches("openai-patches-gpt-5.6", 1.2, _WIDE)
_CLAUDE: Final = VisualTokens("anthropic-1568", (0, 1_296, 1_640), edge=1568, most=1568)
_CLAUDE_LARGE: Final = VisualTokens("anthropic-2576", (0, 2_691, 5_002), edge=2576, most=4784)
_GEMINI_2: Final = Crops("gemini-2", (64, 1_548, 6_192))
_GEMINI_3: Final = Levels("gemini-3", (560, 1_120, 1_232))

# gpt-5-mini is measured at 1.2 tokens a patch and above 1,536 patches (developer forum of OpenAI,
# June 2026). The guide of September agrees; the guide of spring had 1.62 and 1,536.
_BY_ID: Final[Mapping[str, ImageRule]] = MappingProxyType(
    {
        "gpt-4o": _GPT_4O,
        "gpt-4.1": _GPT_4O,
        "gpt-4.5-preview": _GPT_4O,
        "gpt-4o-mini": _tiles("openai-tiles-2833-5667", 2833, 5667),
        "gpt-5": _GPT_5,
        "gpt-5-chat-latest": _GPT_5,
        "gpt-5.1": _GPT_5,
        "o1": _O_SERIES,
        "o1-pro": _O_SERIES,
        "o3": _O_SERIES,
        "computer-use-preview": _tiles("openai-tiles-65-129", 65, 129),
        "gpt-4.1-mini": _make_patches("openai-patches-gpt-4.1-mini", 1.62, _SAME, (1.62, 1536)),
        "gpt-4.1-nano": _make_patches("openai-patches-gpt-4.1-nano", 2.46, _SAME, (2.46, 1536)),
        "o4-mini": _make_patches("openai-patches-o4-mini", 1.72, _SAME, (1.72, 1536)),
        "gpt-5-mini": _make_patches(
            "openai-patches-gpt-5-mini", 1.2, _SAME, (1.2, 1536), (1.62, 1536)
        ),
        "gpt-5-nano": _make_patches(
            "openai-patches-gpt-5-nano", 1.5, _SAME, (1.5, 1536), (2.46, 1536)
        ),
        "gpt-5.2": _make_patches("openai-patches-gpt-5.2", 1.2, _SAME, (1.2, 1536)),
        "gpt-5.4": _make_patches("openai-patches-gpt-5.4", 1.2, _BY_54),
        "gpt-5.4-mini": _make_patches("openai-patches-gpt-5.4-mini", 1.2, _BY_54, (1.62, 1536)),
        "gpt-5.4-nano": _make_patches("openai-patches-gpt-5.4-nano", 1.2, _BY_54, (2.46, 1536)),
        "gpt-5.5": _make_patches("openai-patches-gpt-5.5", 1.2, (_SMALL, _NEW, _LARGE, _LARGE)),
        "gpt-5.6-sol": _GPT_56,
        "gpt-5.6-terra": _GPT_56,
        "gpt-5.6-luna": _GPT_56,
        "gpt-6-astra": _make_patches("openai-patches-gpt-6-astra", 1.2, _ASTRA),
        **dict.fromkeys(
            (
                *("claude-3-haiku", "claude-3-sonnet", "claude-3-opus", "claude-3-5-sonnet"),
                *("claude-3-5-haiku", "claude-3-7-sonnet", "claude-sonnet-4", "claude-opus-4"),
                *("claude-opus-4-1", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-5"),
                *("claude-opus-4-6", "claude-sonnet-4-6"),
            ),
            _CLAUDE,
        ),
        **dict.fromkeys(
            (
                *("claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-sonnet-5"),
                *("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5"),
            ),
            _CLAUDE_LARGE,
        ),
        **dict.fromkeys(
            (
                *("gemini-2.0-flash", "gemini-2.0-flash-lite", "gemini-2.5-flash"),
                *("gemini-2.5-flash-lite", "gemini-2.5-pro"),
            ),
            _GEMINI_2,
        ),
        **dict.fromkeys(
            (
                *("gemini-3-flash-preview", "gemini-3-pro-preview", "gemini-3.1-pro-preview"),
                *("gemini-3.1-flash-lite", "gemini-3.5-flash", "gemini-3.5-flash-lite"),
            ),
            _GEMINI_3,
        ),
    }
)

_MAKER: Final = re.compile(r"(?:openai|anthropic|google|models)/")
_MOVING: Final = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|latest|0)\Z")


def image_rule(model: str | None) -> ImageRule:
    """Return the rule for exactly this model, or `UNKNOWN_IMAGE` if none is published for it.

    The provider's name before the id, a date, `-latest` or `-0` at the end, and dots in the ids of
    Claude (`anthropic/claude-sonnet-4.5`) are ignored. No id uses the rule of a longer or shorter
    one.
    """
    name = _MAKER.sub("", (model or "").strip().lower(), count=1)
    if name.startswith("claude-"):
        name = name.replace(".", "-")
    return _BY_ID.get(name) or _BY_ID.get(_MOVING.sub("", name)) or UNKNOWN_IMAGE


# ── recordings and documents ────────────────────────────────────────────────────────────────────

_SPEECH: Final = (10, 10, 32)
"""Tokens per second. OpenAI: one per 100 ms of a user's speech ("Managing costs" of the Realtime
API, 2026). Gemini: 32 ("Understand and count tokens", 2026).
"""

_UNHEARD: Final = (1, 60, 600)
"""Seconds of a recording without known length and size. No figure is published: a second, a minute,
ten minutes.
"""

_SECOND_BYTES: Final = (192_000, 16_000, 4_000)
"""Bytes of one second: 48 kHz stereo PCM, MP3 at 128 kbit/s, speech at 32 kbit/s."""


def audio(media: Media) -> Band:
    """Return the tokens of a recording (low, best, high); without its length, by its bytes."""
    if media.seconds is not None and media.seconds >= 0:
        return _band(ceil(media.seconds * rate) for rate in _SPEECH)
    if media.size:
        lengths = (media.size / rate for rate in _SECOND_BYTES)
    else:
        lengths = (float(seconds) for seconds in _UNHEARD)
    return _band(ceil(s * rate) for s, rate in zip(lengths, _SPEECH, strict=True))


_PAGE_TOKENS: Final = (258, 2_333, 7_784)
"""Tokens of a page. Low: Gemini 2.5 reads a page as one picture. Best: Anthropic's "PDF support"
page, 2026, gives about 7,000 for three pages. High: that page's 3,000 of text plus the largest
picture of a page, 4,784.
"""

_PAGE_BYTES: Final = (50_000, 10_000)
"""Bytes per page if the number of pages is unknown: usual, and few. At the highest tokens per page,
the second covers pages of 3,000 bytes with the usual tokens.
"""

_MOST_PAGES: Final = 600
"""Anthropic's limit per request ("PDF support", 2026)."""

_UNREAD: Final = (258, 23_330, 233_300)
"""A document without known pages and size. No figure is published: a page, ten, a hundred."""


def document(media: Media) -> Band:
    """Return the tokens of a document (low, best, high); without its pages, by its bytes."""
    low, best, high = _PAGE_TOKENS
    if media.pages is not None and media.pages > 0:
        return low * media.pages, best * media.pages, high * media.pages
    if not media.size:
        return _UNREAD
    usual, most = (min(_MOST_PAGES, media.size // size + 1) for size in _PAGE_BYTES)
    return low, best * usual, high * most
