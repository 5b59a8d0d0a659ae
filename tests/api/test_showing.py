"""How results show themselves: one line in a prompt, a small escaped table in a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

import ullage
from tests.voyage import log_of
from ullage.runtime import Runtime

LONG = log_of(60)
NASTY = "<script>alert('1')</script>"


def guard(**options: Any) -> ullage.Guard:
    return ullage.Guard("gpt-4o", runtime=Runtime(), **{"window": 3_000, **options})


SHOWN: Mapping[str, Any] = {
    "count": ullage.count(LONG, model="gpt-4o"),
    "window": ullage.window("gpt-5"),
    "unknown": ullage.window(NASTY),
    "assessment": ullage.assess(900, 1_000),
    "unavailable": ullage.assess(None, None),
    "compaction": ullage.compact(LONG, target_tokens=900, model="gpt-4o"),
    "missed": ullage.compact(LONG, target_tokens=20, model="gpt-4o", pins=[0, 1]),
    "contents": ullage.context(LONG, model="gpt-4o"),
    "no window": ullage.context(LONG),
}
LINES: Mapping[str, Any] = {
    **SHOWN,
    "guard": guard(),
    "view": guard().prepare(LONG),
    "policy": ullage.Policy.ladder(),
    "off": ullage.Policy.off(),
    "checkpoint": SHOWN["compaction"].checkpoint,
    "outcome": SHOWN["compaction"].outcome,
    "repaired": ullage.repair(LONG),
}


@pytest.mark.parametrize("name", LINES)
def test_a_result_is_one_line_that_begins_with_its_class(name: str) -> None:
    said = repr(LINES[name])
    assert len(said) <= 120
    assert "\n" not in said
    assert re.match(rf"{type(LINES[name]).__name__}\(.*\)$", said)
    assert "Item 7" not in said


def test_a_line_says_what_matters() -> None:
    assert "->" in repr(SHOWN["compaction"])
    assert "272,000 tokens" in repr(SHOWN["window"])
    assert "unknown" in repr(SHOWN["unknown"])
    assert "critical" in repr(SHOWN["assessment"])
    assert "3000" in repr(LINES["guard"])
    assert "ladder" in repr(LINES["guard"])


class Tags(HTMLParser):
    """Collects the tags of a page, and checks that they close."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        self.open.append(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onclick"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_gets_a_small_escaped_table_that_loads_nothing(name: str) -> None:
    page = SHOWN[name]._repr_html_()
    tags = Tags()
    tags.feed(page)
    assert tags.seen <= {"table", "caption", "tr", "th", "td"}
    assert not tags.open
    assert len(page) < 6_000
    assert "<script" not in page


# --- a policy by its name -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ladder", "advisory", "auto_summary", "off"])
def test_a_policy_may_be_given_by_its_name(name: str) -> None:
    preset = ullage.Policy.from_name(name)
    assert guard(policy=name).policy == preset
    assert ullage.compact(LONG, target_tokens=900, policy=name).policy == preset.identity
    provider = ullage.Provider("m", "http://127.0.0.1:9/v1")
    assert ullage.Agent(provider, policy=name, runtime=Runtime()).policy == preset


@pytest.mark.parametrize("wrong", ["lader", "LADDER!", "", 7, ullage.Policy.ladder])
def test_a_policy_that_is_none_is_refused_with_what_there_is(wrong: Any) -> None:
    provider = ullage.Provider("m", "http://127.0.0.1:9/v1")
    for call in (
        lambda: guard(policy=wrong),
        lambda: ullage.compact(LONG, target_tokens=900, policy=wrong),
        lambda: ullage.Agent(provider, policy=wrong, runtime=Runtime()),
    ):
        with pytest.raises(ullage.ConfigurationError, match="ladder"):
            call()


def test_a_mistyped_policy_is_answered_with_the_nearest() -> None:
    with pytest.raises(ullage.ConfigurationError, match="did you mean 'ladder'"):
        guard(policy="lader")
