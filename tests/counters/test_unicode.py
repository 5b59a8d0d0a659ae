"""The tables of doubtful and newer code points hold for every code point there is."""

from __future__ import annotations

import pytest

from tests.counters.oracle import BACK_ENDS, NAMES, reference
from ullage.counters import unicode
from ullage.counters.pure import Pure
from ullage.counters.recall import Deferred
from ullage.counters.toktok import Toktok

CONTEXTS = (
    "{}", "a{}b", "A{}b", "a{}B", "{}Aa", "1{}2", "!{}!", "'{}", "a'{}e", " {}a", " {}{}{}",
    "x{} y", "\n{}\n", "中{}文", "{}'s",
)  # fmt: skip
CODE_POINTS = [cp for cp in range(0x110000) if not 0xD800 <= cp < 0xE000]


def members(pattern: str) -> set[str]:
    found: set[str] = set(getattr(unicode, pattern).findall("".join(map(chr, CODE_POINTS))))
    return found


def test_the_rough_look_misses_no_doubtful_code_point() -> None:
    assert members("_DOUBTED") <= members("_ROUGHLY_DOUBTED")


def test_the_rough_look_misses_no_newer_code_point() -> None:
    roughly = members("_ROUGHLY_NEWER")
    for pattern, _ in unicode._NEWER:
        assert set(pattern.findall("".join(map(chr, CODE_POINTS)))) <= roughly


def test_exactly_the_known_code_points_are_doubtful() -> None:
    assert len(members("_DOUBTED")) == 4_700


def test_a_shadow_is_as_long_as_its_text() -> None:
    text = "".join(map(chr, CODE_POINTS))
    assert len(unicode.shadow(text)) == len(text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "one two\nthree, four (five) 6.7",
        "它说\uff1a你好。好\uff01 다음, 또",
        "x 's y 1 's",
        "end.\n\n  next  1  ",
        "it's, ok",
    ],
)
def test_segments_add_up(name: str, text: str) -> None:
    pieces = unicode.segments(text)
    assert "".join(pieces) == text
    assert len(pieces) > 1
    assert sum(map(reference(name), pieces)) == reference(name)(text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_a_sample_of_all_code_points_counts_as_in_the_reference(back_end: str, name: str) -> None:
    count, expected = BACK_ENDS[back_end](name).count, reference(name)
    sample = CODE_POINTS[::197] + [ord(c) for c in members("_DOUBTED")][::29]
    for context in CONTEXTS:
        for cp in sample:
            text = context.replace("{}", chr(cp))
            assert count(text) == expected(text), (hex(cp), context)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_every_code_point_counts_as_in_the_reference(back_end: str, name: str) -> None:
    count, expected = BACK_ENDS[back_end](name).count, reference(name)
    for context in CONTEXTS:
        texts = [context.replace("{}", chr(cp)) for cp in CODE_POINTS]
        wrong = [text for text in texts if count(text) != expected(text)]
        assert not wrong, (context, [hex(ord(max(text))) for text in wrong[:20]])


def test_text_that_is_not_doubtful_is_counted_by_toktok_alone() -> None:
    exact = Deferred("o200k_base", lambda: Pure("o200k_base"))
    toktok = Toktok("o200k_base", exact)
    toktok.count_many(["plain … größe 中文 🚀", "\ud800", "हिन्दी"])
    assert exact._counter is None
    toktok.count("\U000323b0")
    assert exact._counter is not None
