"""What headers say of media, and what media cost by the providers' published formulas."""

from __future__ import annotations

import struct
from base64 import b64encode, urlsafe_b64encode
from math import ceil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ullage.core.messages import media
from ullage.core.messages.media import (
    UNKNOWN_IMAGE,
    audio,
    describe,
    document,
    identity,
    image_rule,
)
from ullage.core.messages.transcript import Media, MediaKind

KINDS: list[MediaKind] = ["image", "audio", "file"]
MODELS = [
    *("gpt-4o", "gpt-4o-mini", "gpt-5", "o3", "gpt-4.1-mini", "gpt-5-nano", "gpt-5.4", "gpt-5.5"),
    *("gpt-5.6-sol", "gpt-6-astra", "claude-opus-4-6", "claude-opus-4-7", "gemini-2.5-pro"),
    *("gemini-3.1-pro-preview", "somebody-else", None),
]
DETAILS = [None, "auto", "low", "medium", "high", "original", "ultra_high", "nonsense"]
SIDES = st.one_of(st.integers(1, 3000), st.integers(1, 100_000))


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + struct.pack(">II", width, height) + bytes(9)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(3)


def bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<Iii", 40, width, -height) + bytes(28)


def old_bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<IHH", 12, width, height) + bytes(4)


def webp(chunk: bytes, body: bytes) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBP" + chunk + bytes(4) + body + bytes(20)


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", bytes(4) + sides)


def jpeg(width: int, height: int, *, marker: int = 0xC0, before: bytes = b"") -> bytes:
    frame = bytes([0xFF, marker]) + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + before + frame + b"\xff\xda" + bytes(20)


def segment(marker: int, length: int) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", length + 2) + b"\xc0" * length


def wav(rate: int, length: int, data: bytes, *, before: bytes = b"") -> bytes:
    form = struct.pack("<HHiiHH", 1, 1, rate // 2, rate, 2, 16)
    return (
        b"RIFF\x00\x00\x00\x00WAVE"
        + before
        + (b"fmt " + struct.pack("<I", 16) + form if rate >= 0 else b"")
        + (b"data" + struct.pack("<I", length) + data)
    )


def data_url(body: bytes, form: str = "image/png") -> str:
    return f"data:{form};base64,{b64encode(body).decode()}"


def dimensions(body: bytes) -> tuple[int | None, int | None]:
    known = describe("image", data_url(body))
    return known.width, known.height


@pytest.mark.parametrize("form", [png, gif, bmp, old_bmp, lossy, lossless, extended, jpeg])
@given(width=st.integers(1, 16_000), height=st.integers(1, 16_000))
def test_headers_state_the_dimensions(form, width: int, height: int):
    assert dimensions(form(width, height)) == (width, height)


@pytest.mark.parametrize("form", [png, gif, bmp, old_bmp, lossy, lossless, extended, jpeg])
def test_a_header_that_is_cut_off_states_nothing_wrong(form):
    body = form(1234, 567)
    for end in range(len(body)):
        assert dimensions(body[:end]) in {(1234, 567), (None, None)}


@pytest.mark.parametrize("marker", [*range(0xC0, 0xC4), *range(0xC5, 0xC8), 0xC9, 0xCF])
def test_every_frame_marker_of_a_jpeg_is_known(marker: int):
    assert dimensions(jpeg(640, 480, marker=marker)) == (640, 480)


@pytest.mark.parametrize("marker", [0xC4, 0xC8, 0xCC, 0xE1, 0xFE])
def test_segments_of_a_jpeg_that_are_no_frame_are_skipped(marker: int):
    assert dimensions(jpeg(640, 480, before=segment(marker, 300))) == (640, 480)
    assert dimensions(jpeg(64, 48, marker=marker)) == (None, None)


def test_a_jpeg_may_hold_fill_bytes_restarts_and_a_large_profile():
    before = b"\xff\xff" + segment(0xE0, 14) + b"\xff\xd0\xff\x01" + segment(0xE2, 65_000) * 3
    assert dimensions(jpeg(640, 480, before=before)) == (640, 480)


def test_a_jpeg_is_read_up_to_a_bound_only():
    assert dimensions(jpeg(640, 480, before=segment(0xE2, 65_000) * 5)) == (None, None)


@pytest.mark.parametrize(
    "body",
    [
        jpeg(640, 0),  # stated behind the picture (DNL)
        jpeg(640, 480, before=b"\xff\xda" + bytes(9)),
        jpeg(640, 480, before=b"\xff\xe0\x00\x00"),
        jpeg(640, 480, before=b"\xff\x00"),
        png(0, 5),
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\x04CgBI" + bytes(30),
        webp(b"VP8 ", bytes(10)),
        webp(b"VP8L", bytes(10)),
        webp(b"ALPH", bytes(10)),
        b"RIFF\x00\x00\x00\x00AVI " + bytes(30),
        b"<svg/>",
        b"\x00",
    ],
)
def test_what_is_no_header_leaves_the_dimensions_unknown(body: bytes):
    known = describe("image", data_url(body))
    assert (known.width, known.height, known.size) == (None, None, len(body))


@given(body=st.binary(min_size=1, max_size=400))
def test_the_size_is_the_decoded_length(body: bytes):
    text = b64encode(body).decode()
    wrapped = "\r\n".join(text[i : i + 76] for i in range(0, len(text), 76))
    for source in (text, data_url(body), f"DATA:;BASE64,{wrapped}", f"data:a/b;base64,{wrapped}"):
        assert describe("file", source).size == len(body)


def test_base64_without_padding_or_for_urls_is_read():
    body = png(300, 200) + b"\xfb\xff\xfe" * 100
    assert describe("image", b64encode(body + b"x").decode().rstrip("=")).width == 300
    assert describe("image", urlsafe_b64encode(body).decode()).height == 200
    odd = b64encode(png(30, 20)).decode().rstrip("=")[:33]
    assert describe("image", odd).size == 24


@pytest.mark.parametrize(
    "source",
    [
        *("", "https://example.org/cat.png", "HTTP://example.org", "file-abc123", "gs://a/b"),
        *("data:", "data:image/png", "data:image/png;base64", "data:image/png;base64,"),
        *("data:text/plain,hello", "\ud800", "a b?"),
    ],
)
def test_a_source_without_bytes_leaves_everything_unknown(source: str):
    assert describe("image", source, detail="low") == Media("image", detail="low")


@given(st.sampled_from(KINDS), st.text(max_size=300), st.binary(max_size=300))
@example("image", "data:;base64,====", b"")
@example("audio", "data:;base64,A", b"")
def test_describing_never_raises(kind: MediaKind, text: str, body: bytes):
    for start in (b"", b"\xff\xd8\xff", b"RIFF....WAVE", b"RIFF....WEBPVP8X", b"%PDF-1.4 /N"):
        assert describe(kind, data_url(start + body)).kind == kind
    for source in (text, f"data:{text}", f"data:;base64,{text}"):
        known = describe(kind, source)
        assert known.size is None or known.size >= 0


def test_a_recording_says_its_length_in_its_header():
    body = wav(32_000, 64_000, bytes(64_000))
    assert describe("audio", data_url(body)).seconds == 2.0
    extra = b"LIST" + struct.pack("<I", 3) + bytes(4)  # an odd chunk is padded
    assert describe("audio", data_url(wav(8000, 4000, bytes(4000), before=extra))).seconds == 0.5


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF])
def test_a_streamed_recording_is_measured_by_its_bytes(length: int):
    assert describe("audio", data_url(wav(8000, length, bytes(4000)))).seconds == 0.5


@pytest.mark.parametrize(
    "body",
    [
        *(b"ID3\x04" + bytes(99), b"RIFF\x00\x00\x00\x00WEBP" + bytes(30), wav(0, 9, bytes(9))),
        *(wav(-1, 9, bytes(9)), wav(8000, 9, bytes(9))[:30], b"RIFF\x00\x00\x00\x00WAVE"),
    ],
)
def test_other_recordings_do_not_say_their_length(body: bytes):
    known = describe("audio", data_url(body))
    assert (known.seconds, known.size) == (None, len(body))


PAGES = b"%PDF-1.4\n1 0 obj<</Type /Pages /Count 3>>" + b"<</Type/Page >><</Type  /Page/A 1>>" * 3


def test_the_page_objects_of_a_document_are_counted():
    assert describe("file", data_url(PAGES)).pages == 6
    assert describe("file", data_url(b"text " + PAGES)).pages is None
    assert describe("file", data_url(b"%PDF-1.4 <</Type /Pages>>")).pages is None


def test_pages_that_may_hide_are_unknown():
    assert describe("file", data_url(PAGES + b"<</Type /ObjStm>>")).pages is None
    assert describe("file", data_url(PAGES + bytes(media.DOCUMENT_BYTES))).pages is None


def test_a_linearised_document_states_its_pages_at_the_front():
    first = b"%PDF-1.7 4 0 obj<</Linearized 1/L 99/H[5 6]/O 6/E 7/N 12/T 9>>endobj "
    hidden = b"<</Type /ObjStm>>" + bytes(100)
    assert describe("file", data_url(first + hidden)).pages == 12
    assert describe("file", data_url(first.replace(b"/N 12", b"/N 0") + hidden)).pages is None


@given(st.text(max_size=400), st.text(max_size=400))
def test_identities_are_short_and_tell_sources_apart(one: str, other: str):
    assert len(identity(one)) <= media.SHORT
    assert (identity(one) == identity(other)) == (one == other)


def test_an_identity_shows_addresses_and_hides_content():
    assert identity("") == ""
    assert identity("https://example.org/cat.png") == "https://example.org/cat.png"
    for source in ("data:,secret", "https://example.org/" + "a" * 300, "blake2b:00"):
        assert identity(source).startswith("blake2b:")
        assert identity(source) not in {source, "blake2b:"}


def tokens(model: str | None, width: int, height: int, detail: str | None = None) -> int:
    return image_rule(model).size(Media("image", width, height, detail))[1]


@pytest.mark.parametrize(
    ("model", "width", "height", "detail", "expected"),
    [
        # the examples of OpenAI's guide, past and present
        ("gpt-4o", 1024, 1024, "high", 765),
        ("gpt-4o", 2048, 4096, "high", 1105),
        ("gpt-4o", 4096, 8192, "low", 85),
        ("gpt-4o", 512, 512, "auto", 255),
        ("gpt-4.1", 1024, 1024, None, 765),
        ("gpt-4o-mini", 1024, 1024, None, 2833 + 4 * 5667),
        ("gpt-5", 1024, 1024, None, 70 + 4 * 140),
        ("o1", 1024, 1024, None, 75 + 4 * 150),
        ("gpt-5.4", 1024, 1024, "high", 1229),
        ("gpt-5.4", 2048, 2048, "high", 3000),
        ("gpt-5.5", 1080, 1350, "high", 1755),
        ("gpt-5.5", 6000, 6000, "high", 3000),
        ("gpt-5.5", 3200, 3200, None, 12_000),
        ("gpt-6-astra", 1280, 720, None, 1104),
        ("gpt-6-astra", 640, 480, "low", 231),
        # Anthropic's table
        ("claude-sonnet-4-6", 200, 200, None, 64),
        ("claude-sonnet-4-6", 1000, 1000, None, 1296),
        ("claude-sonnet-4-6", 1092, 1092, None, 1521),
        ("claude-sonnet-4-6", 3840, 2160, None, 1560),
        ("claude-sonnet-4-6", 1075, 1520, None, 33 * 47),
        ("claude-opus-4-7", 1920, 1080, None, 2691),
        ("claude-opus-4-7", 3840, 2160, None, 4784),
        # Google's
        ("gemini-2.5-flash", 384, 384, None, 258),
        ("gemini-2.5-flash", 960, 540, None, 1548),
        ("gemini-3.5-flash", 4000, 3000, None, 1120),
        ("gemini-3.5-flash", 4000, 3000, "low", 280),
    ],
)
def test_the_published_examples_hold(
    model: str, width: int, height: int, detail: str | None, expected: int
):
    assert tokens(model, width, height, detail) == expected


def test_a_budget_once_published_is_within_the_band():
    # 1800 x 2400 at 1,536 patches is 33 x 44 in OpenAI's guide of spring 2026
    low, _, high = image_rule("gpt-4.1-mini").size(Media("image", 1800, 2400))
    assert low <= ceil(1452 * 1.62) <= high
    # gpt-5-mini, 1800 x 1200, as measured in June 2026
    low, _, high = image_rule("gpt-5-mini").size(Media("image", 1800, 1200))
    assert low <= 2334 <= high


def test_an_image_that_is_scaled_up_is_within_the_band():
    assert image_rule("gpt-4o").size(Media("image", 512, 512)) == (255, 255, 85 + 4 * 170)


@pytest.mark.parametrize("model", MODELS)
@given(width=SIDES, height=SIDES, detail=st.sampled_from(DETAILS))
@example(width=65_535, height=33, detail="high")
@example(width=100_000, height=1, detail="original")
def test_bands_rise_and_an_image_is_within_that_of_an_unseen_one(
    model: str | None, width: int, height: int, detail: str | None
):
    rule = image_rule(model)
    low, best, high = rule.size(Media("image", width, height, detail))
    assert 0 <= low <= best <= high
    least, typical, most = rule.size(Media("image", detail=detail))
    assert 0 <= least <= typical <= most
    if rule.name != "gemini-2":  # whose narrow strips have no published end
        assert least <= low
        assert high <= most


@pytest.mark.parametrize("sides", [(None, 5), (5, None), (0, 5), (5, 0), (-1, 5), (5, -1)])
def test_dimensions_that_cannot_be_are_unknown_ones(sides):
    rule = image_rule("gpt-4o")
    assert rule.size(Media("image", *sides)) == rule.size(Media("image")) == (255, 765, 1445)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o-2024-08-06", "openai-tiles-85-170"),
        ("openai/gpt-4o", "openai-tiles-85-170"),
        (" GPT-4o ", "openai-tiles-85-170"),
        ("claude-haiku-4-5-20251001", "anthropic-1568"),
        ("anthropic/claude-sonnet-4.5", "anthropic-1568"),
        ("claude-3-5-sonnet-latest", "anthropic-1568"),
        ("claude-opus-4-0", "anthropic-1568"),
        ("models/gemini-2.5-pro", "gemini-2"),
    ],
)
def test_a_model_is_found_under_its_maker_and_date(model: str, name: str):
    assert image_rule(model).name == name


@pytest.mark.parametrize(
    "model",
    [
        *(None, "", "gpt-4o-audio-preview", "gpt-4o-mini-search", "gpt-5-pro", "gpt-5.3", "o3-pro"),
        *("gpt-4", "claude", "claude-opus-9", "my/gpt-4o", "gpt-4o-2024", "gpt-4o-latest-x"),
    ],
)
def test_no_model_borrows_the_rule_of_another(model: str | None):
    assert image_rule(model) is UNKNOWN_IMAGE


def test_rules_have_names_of_their_own():
    rules = {image_rule(model) for model in MODELS}
    assert len({rule.name for rule in rules}) == len(rules)


def test_speech_costs_ten_tokens_a_second_or_more():
    assert audio(Media("audio", seconds=2.0)) == (20, 20, 64)
    assert audio(Media("audio", seconds=0.0)) == (0, 0, 0)


def test_a_recording_of_unknown_length_is_banded_by_its_bytes():
    assert audio(Media("audio", size=192_000)) == (10, 120, 1536)
    assert audio(Media("audio")) == audio(Media("audio", seconds=-1.0)) == (10, 600, 19_200)


def test_documents_cost_by_the_page():
    assert document(Media("file", pages=3)) == (774, 6_999, 23_352)


def test_a_document_of_unknown_pages_is_banded_by_its_bytes():
    assert document(Media("file", size=100_000)) == (258, 3 * 2_333, 11 * 7_784)
    assert document(Media("file", size=10**12)) == (258, 600 * 2_333, 600 * 7_784)
    assert document(Media("file")) == document(Media("file", pages=0)) == (258, 23_330, 233_300)


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_more_bytes_never_cost_less(size: int, more: int):
    for band in (audio, document):
        few, many = band(Media("file", size=size)), band(Media("file", size=size + more))
        assert few[0] <= few[1] <= few[2]
        assert all(a <= b for a, b in zip(few, many, strict=True))
