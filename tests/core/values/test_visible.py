"""What hides or steers is shown as an escape; what scripts and emoji are made of stays."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.values.visible import JOINERS, clean, clean_lines

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


@pytest.mark.parametrize(
    "text", ["plain", "é 漢字", FAMILY, PERSIAN, "क्\u200dष", f"of {FAMILY} now"]
)
def test_what_is_seen_stays_as_it_is(text: str) -> None:
    assert clean(text) == text
    assert clean_lines(f"{text}\n\t{text}") == f"{text}\n\t{text}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pay\u200dpal", "pay\\u200dpal"),
        ("\u200cم", "\\u200cم"),
        ("م\u200d\u200d", "م\u200d\\u200d"),
        ("a\u202eb\x1b[2K\x07", "a\\u202eb\\x1b[2K\\x07"),
        ("x\U000e0041", "x\\U000e0041"),
        ("\u2764\ufe0f", "\u2764"),
        ("م\u200d\ufe0f\u200d\ufe0f\u200d", "م\u200d\\u200d\\u200d"),
        ("م\u034f\u200d\ufe01\u200d", "م\u034f\\u200d\ufe01\\u200d"),
    ],
)
def test_what_hides_or_steers_is_an_escape(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text("am\u0645\u094d\u0301\u200c\u200d\ufe0f\u034f\u202e\U0001f469 \x1b", max_size=30))
def test_what_is_clean_stays_so_and_no_joiner_stands_behind_another(text: str) -> None:
    shown = clean(text)
    assert clean(shown) == shown
    for before, one in pairwise(f" {shown}"):
        assert one not in JOINERS or before not in f"{JOINERS} \u0301\u034f"


def test_in_ascii_all_else_is_an_escape() -> None:
    assert clean(PERSIAN[:3], ascii=True) == "\\u0645\\u06cc\\u200c"
    assert clean(3) == "3"
