"""What is left of events whose text was erased."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ullage.core.session.log.erasing import PURGED, erase_events, is_purged
from ullage.core.session.log.event import Draft, Event, make_event


def event(kind: str, data: dict[str, Any]) -> Event:
    return make_event("s", 1, 2.0, Draft(kind, data), "")


def test_numbers_of_a_report_stay_and_its_words_go() -> None:
    context = {"tokens": 7, "reason": "words"}
    told = event("provider_usage", {"model": "m", "input": 5, "stop": "end", "context": context})
    kept, last = erase_events([told], 9.0)
    assert kept.data == {"model": "m", "input": 5, "context": {"tokens": 7}}
    assert (kept.ts, last.type) == (2.0, PURGED)
    assert is_purged([kept, last])


@pytest.mark.parametrize("text", ["[1]", "no JSON", '{"input": 5}'])
def test_a_report_that_cannot_be_read_is_erased_like_any_other(text: str) -> None:
    told = replace(event("provider_usage", {"model": "m"}), text=text)
    kept, _ = erase_events([told], 9.0)
    assert kept.type == "event_erased"
    assert kept.data == {"type": "provider_usage", "characters": len(text)}


def test_a_type_that_nobody_knows_keeps_no_name() -> None:
    kept, _ = erase_events([event("a secret name", {"x": 1})], 9.0)
    assert kept.data["type"] == "unknown"
