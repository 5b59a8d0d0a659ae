"""The bench's transcripts are what they claim to be, and its judge sees a broken pair."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.judge import paired
from bench.transcript import Shape, turns, write

shapes = st.builds(
    Shape,
    messages=st.integers(6, 60),
    end=st.sampled_from(("user", "tool")),
    single_user=st.booleans(),
    seed=st.integers(0, 50),
)


@given(shape=shapes)
@settings(deadline=None)
def test_a_transcript_has_its_shape(shape: Shape) -> None:
    messages = write(shape)
    assert len(messages) == shape.messages
    assert [m["role"] for m in messages[:2]] == ["system", "user"]
    assert paired(messages)
    users = sum(m["role"] == "user" for m in messages)
    if shape.single_user:
        assert users == 1
    elif shape.end == "user":
        assert messages[-1]["role"] == "user"
    assert sum(map(len, turns(messages))) == len(messages)


def test_the_same_shape_is_the_same_transcript() -> None:
    assert write(Shape(200)) == write(Shape(200))
    assert write(Shape(200)) != write(Shape(200, seed=2))


def test_a_large_transcript_has_every_hardship() -> None:
    messages = write(Shape(2_000))
    calls = {len(m.get("tool_calls") or ()) for m in messages}
    sizes = sorted(len(m["content"] or "") for m in messages if m["role"] == "tool")
    assert calls == {0, 1, 2, 3, 4}
    assert sum(m["content"] is None for m in messages) > 200
    assert sizes[-1] > 20 * sizes[len(sizes) // 2]
    assert any("配置文件" in (m["content"] or "") for m in messages)


@pytest.mark.parametrize("drop", ["assistant", "tool"])
def test_the_judge_sees_half_a_pair(drop: str) -> None:
    messages = write(Shape(40))
    at = next(i for i, m in enumerate(messages) if m["role"] == drop and _in_pair(m))
    assert not paired(messages[:at] + messages[at + 1 :])


def test_the_judge_sees_a_result_out_of_place() -> None:
    messages = write(Shape(40))
    at = next(i for i, m in enumerate(messages) if m["role"] == "tool")
    said = {"role": "user", "content": "wait"}
    assert not paired([*messages[:at], said, *messages[at:]])
    assert not paired([messages[0], messages[at]])


def _in_pair(message: dict[str, object]) -> bool:
    return message["role"] == "tool" or bool(message.get("tool_calls"))
