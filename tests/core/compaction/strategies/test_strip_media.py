"""strip_media: all media outside the pins make way for a line, and nothing else changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.core.compaction.situations import CODEC, said, situation, situations
from ullage.core.compaction.edits import Clear, apply
from ullage.core.compaction.situation import Situation
from ullage.core.compaction.strategies.strip_media import plan

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


def showing(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "look"}, *parts]}


def test_every_medium_becomes_a_line_that_says_of_what_kind_it_was():
    script = plan(situation([showing(IMAGE, SOUND), said("user", "x"), showing(IMAGE)], 0))
    assert script.clears == (
        Clear(0, 1, -1, "[ullage: image left out]"),
        Clear(0, 2, -1, "[ullage: audio left out]"),
        Clear(2, 1, -1, "[ullage: image left out]"),
    )
    assert not script.drops


def test_pinned_media_stay():
    history = [showing(IMAGE), showing(IMAGE)]
    (edit,) = plan(situation(history, 0, pins=frozenset({1}))).clears
    assert edit.message == 0


def test_a_history_of_text_is_left_alone():
    assert not plan(situation([said("user", "look at a.png")], 0))


@given(situations())
def test_nothing_but_media_goes_and_none_is_left_outside_the_pins(found: Situation):
    script = plan(found)
    edited = apply(found.transcript, script, CODEC)
    kept = edited.transcript.messages
    assert len(kept) == len(found.transcript)
    for index, message in enumerate(kept):
        if index in found.pins:
            assert edited.transcript.raws[index] is found.transcript.raws[index]
        else:
            assert all(part.media is None for part in message.parts)
