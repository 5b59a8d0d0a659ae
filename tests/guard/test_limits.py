"""Limits of a provider beside tokens: media make way before the send, the rest is told."""

from __future__ import annotations

import struct
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from tests.core.guard.driving import World, setup, window
from ullage import Guard
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.families import RequestLimits
from ullage.core.guard import machine
from ullage.core.guard.events import Notice
from ullage.core.guard.request import Request
from ullage.runtime import Runtime

HEAD = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 320, 240, 8, 2, 0, 0, 0)
PICTURE = b64encode(HEAD + bytes(300)).decode()
"""The beginning of a picture of 320 by 240 pixels."""


def image(number: int, data: str = PICTURE) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": data}
    said = {"type": "text", "text": f"Picture {number}."}
    return {"role": "user", "content": [{"type": "image", "source": source}, said]}


def history(images: int, data: str = PICTURE) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"role": "user", "content": "Look at these."}]
    for number in range(images):
        made += [{"role": "assistant", "content": "Yes?"}, image(number, data)]
    return made


def count_images(messages: Any) -> int:
    return str(messages).count("'type': 'image'")


def guard(model: str = "claude-haiku-4-5", **options: Any) -> Guard:
    return Guard(model, dialect="anthropic", runtime=Runtime(), **options)


def test_the_oldest_images_make_way_for_a_provider_that_takes_no_more():
    messages = history(101)
    view = guard().prepare(messages)
    assert count_images(view.messages) == 51  # half, and that of the current request
    assert view.messages[-1] is messages[-1]
    assert "[ullage: image left out]" in str(view.messages[:10])
    assert "strip_media" in view.prepared.checkpoint.strategy  # type: ignore[union-attr]


def test_so_many_as_it_takes_stay_and_another_one_breaks_no_prefix():
    own = guard()
    messages = history(100)
    assert own.prepare(messages).messages == messages
    first = own.prepare(history(101)).messages
    assert own.prepare(history(102)).messages[: len(first) - 1] == first[:-1]


@pytest.mark.parametrize(
    ("model", "options"), [("tern-9", {}), ("claude-haiku-4-5", {"base_url": "http://127.0.0.1:9"})]
)
def test_a_server_of_somebodys_own_says_itself(model: str, options: dict[str, Any]):
    messages = history(101)
    assert guard(model, window=9_000_000, **options).prepare(messages).messages == messages


def test_bytes_are_limited_too():
    small = replace(setup(), codec=Anthropic(), limits=RequestLimits(size=60 * len(PICTURE)))
    for images, left in ((50, 50), (80, 31)):
        steps = machine.prepare(small, Request(history(images)))
        assert count_images(World(window(9_000_000)).drive(steps).messages) == left


def test_a_policy_that_changes_nothing_leaves_them():
    messages = history(101)
    assert guard(policy="off").prepare(messages).messages == messages


def test_what_cannot_be_helped_is_told():
    told: list[Any] = []
    tools = [{"type": "function", "function": {"name": f"f{n}"}} for n in range(129)]
    own = Guard("gpt-5.4", runtime=Runtime(), on_event=told.append)
    own.prepare([{"role": "user", "content": "Go."}], tools=tools)
    said = [event.text for event in told if isinstance(event, Notice)]
    assert said == ["the request holds 129 tools, and its provider takes 128"]
