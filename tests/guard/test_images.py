"""Chats with pictures on models of one's own: what an image takes shows in the first reports.

Servers answer with what their model takes for an image: Gemma 3 256 tokens whatever its size
(its model card, 2025), LLaVA 1.5 576 (24 * 24 patches, its paper, 2023), Qwen2.5-VL one for every
28 * 28 pixels (its model card, 2025).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ullage import Guard
from ullage.config import Settings
from ullage.runtime import Runtime
from ullage.storage import MemoryStore

WORDS = (
    *("the", "cellar", "holds", "casks", "which", "people", "bring", "down", "in", "autumn", "and"),
    *("open", "again", "in", "spring"),
)
MODELS: dict[str, Callable[[int, int], int]] = {
    "gemma": lambda _, __: 256,
    "llava": lambda _, __: 576,
    "qwen": lambda width, height: -(-width // 28) * -(-height // 28),
}


def make_png(width: int, height: int) -> str:
    """Return an image as a data URL: a true header, and no more than that."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = b"IHDR" + head
    chunk = struct.pack(">I", len(head)) + body + struct.pack(">I", zlib.crc32(body))
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk).decode()
    return f"data:image/png;base64,{data}"


@dataclass
class PictureChat:
    """A person who shows pictures to a model at a server that reports what it takes."""

    guard: Guard
    takes: Callable[[int, int], int]
    ratio: float = 1.2
    history: list[dict[str, Any]] = field(default_factory=list)
    compacted: int = 0

    def take_turn(self, words: int, *sizes: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return the edges of the count around its best value, and the tokens that were true."""
        said = " ".join(WORDS[(len(self.history) + i) % len(WORDS)] for i in range(words))
        parts: list[Any] = [{"type": "text", "text": said}]
        for width, height in sizes:
            url = make_png(width, height)
            parts.append({"type": "image_url", "image_url": {"url": url}, "of": (width, height)})
        self.history.append({"role": "user", "content": parts})
        view = self.guard.prepare(self.history)
        self.compacted += view.prepared.checkpoint is not None
        true = self.count(view.messages)
        view.observe({"usage": {"prompt_tokens": true, "completion_tokens": 9}, "choices": []})
        self.history.append({"role": "assistant", "content": "It shows a cellar with casks."})
        count = view.prepared.count
        return count.low, count.tokens, count.high, true

    def count(self, messages: Any) -> int:
        tokens = 30.0
        for message in messages:
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for part in parts:
                if part["type"] == "text":
                    tokens += self.ratio * len(part["text"].split()) + 4
                else:
                    tokens += self.takes(*part["of"])
        return round(tokens)


def make_guard(window: int, runtime: Runtime | None = None, store: Any = None) -> Guard:
    runtime = runtime or Runtime()
    store = store or MemoryStore()
    return Guard("our-vision-model", window=window, runtime=runtime, store=store)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("window", [8_192, 32_768])
def test_a_chat_with_pictures_is_not_compacted_while_it_is_small(name, window):
    chat = PictureChat(make_guard(window), MODELS[name])
    true = 0
    while true < 0.5 * window:
        low, best, high, true = chat.take_turn(60, (640, 480))
        if len(chat.history) > 4:
            assert low <= true <= high
            assert best == pytest.approx(true, rel=0.3)
    assert chat.compacted == 0


BLOCK = 100
"""Tokens of words that a block in their place would not make fewer."""

SAME = [(561, 785), (981, 1065)]
UNEVEN = [
    *[(333, [(167, 786), (886, 1235)]), (1, [(28, 28), (235, 1340)]), (335, [])],
    *[(8, [(219, 236), (399, 1175)]), (1, [(28, 28), (841, 897)]), (1, []), (187, [])],
    *[(103, [(263, 902), (470, 941)]), (227, []), (332, []), (218, [(126, 564), (841, 897)])],
]
"""A small image beside a large one: their mean was taken for what the large one takes at most."""


@settings(max_examples=60, deadline=None)
@example(name="qwen", window=4_096, ratio=1.0, turns=[(1, SAME), (1, []), (1, []), (1, SAME)])
@example(name="qwen", window=4_096, ratio=1.3133, turns=UNEVEN)
@given(
    name=st.sampled_from(sorted(MODELS)),
    window=st.sampled_from([4_096, 8_192, 32_768]),
    ratio=st.floats(0.8, 1.5),
    turns=st.lists(
        st.tuples(
            st.integers(1, 400),
            st.lists(st.tuples(st.integers(28, 1_400), st.integers(28, 1_400)), max_size=2),
        ),
        min_size=4,
        max_size=14,
    ),
)
def test_whatever_the_sizes_are_nothing_is_sent_that_could_fit_and_does_not(
    name, window, ratio, turns
):
    chat = PictureChat(make_guard(window), MODELS[name], ratio)
    for words, sizes in turns:
        *_, true = chat.take_turn(words, *sizes)
        stays = chat.count([chat.history[0], chat.history[-2]])  # the task, and what is asked now
        assert true <= window or true <= stays + BLOCK


def test_a_ratio_of_text_is_not_taken_from_a_report_of_images():
    """An image of 16 tokens that was guessed at 1,024 once made all text a third of what it is."""
    chat = PictureChat(make_guard(32_768), lambda *_: 16)
    for _ in range(4):
        chat.take_turn(40, (640, 480))
    _, best, _, true = chat.take_turn(4_000)
    assert best == pytest.approx(true, rel=0.15)


def test_another_conversation_and_a_restart_know_it_at_once(tmp_path):
    settings = Settings(cache_dir=str(tmp_path))
    runtime = Runtime(settings=settings)
    first = PictureChat(make_guard(8_192, runtime), MODELS["gemma"])
    for _ in range(3):
        first.take_turn(60, (640, 480))
    other = Runtime(settings=settings)
    for known in (runtime, other):
        _, best, high, true = PictureChat(make_guard(8_192, known), MODELS["gemma"]).take_turn(
            60, (640, 480), (320, 200), (640, 480)
        )
        assert true <= high < 2.5 * true
        assert best == pytest.approx(true, rel=0.3)


def test_a_conversation_carries_it_to_another_machine():
    store = MemoryStore()
    first = PictureChat(make_guard(8_192, store=store), MODELS["llava"])
    for _ in range(3):
        first.take_turn(60, (640, 480))
    again = PictureChat(make_guard(8_192, store=store), MODELS["llava"], history=first.history)
    _, _, high, true = again.take_turn(60, (640, 480))
    assert true <= high < 1.5 * true


@pytest.mark.parametrize(("before", "after"), [(256, 1_600), (1_600, 70), (256, 4_000)])
def test_a_server_that_takes_more_or_less_than_before_is_learned_from_its_reports(before, after):
    chat = PictureChat(make_guard(32_768), lambda *_: before)
    for _ in range(3):
        chat.take_turn(60, (640, 480))
    chat.takes = lambda *_: after
    for _ in range(4):
        chat.take_turn(60, (640, 480))
    low, _, high, true = chat.take_turn(60, (640, 480))
    assert low <= true <= high
