"""Situations for tests of strategies: measured with the counter that counts words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.support.counting import WordCounter
from tests.support.transcripts import histories
from ullage.core.compaction import laws
from ullage.core.compaction.edits import Edit, Script, apply
from ullage.core.compaction.situation import Situation
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.messages.transcript import Codec
from ullage.core.tokens.counting import Meter, measure

CODEC = OpenAIChat()
METER = Meter(WordCounter())


def situation(
    raws: list[dict[str, Any]],
    target: int,
    *,
    tail: int = 0,
    pins: frozenset[int] = frozenset(),
    codec: Codec = CODEC,
    **more: Any,
) -> Situation:
    """Return the situation of a lawful history over (or under) a target in tokens.

    `more` are other fields of a Situation.
    """
    transcript = codec.read(raws)
    measured = measure(transcript, METER)
    return Situation(
        transcript=transcript,
        units=laws.units(transcript),
        sizes=[size.high for size in measured.sizes],
        fixed=measured.fixed.high,
        target=target,
        pins=pins,
        tail=tail,
        counter=METER.counter,
        **more,
    )


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Return situations with any target, tail and pins."""
    raws = draw(histories(max_turns=5))
    whole = situation(raws, 0).total
    pins = draw(st.frozensets(st.integers(0, len(raws) - 1), max_size=3))
    return situation(
        raws,
        draw(st.integers(0, whole + 50)),
        tail=draw(st.sampled_from([0, whole // 4, whole])),
        pins=pins,
    )


def total_after(before: Situation, edits: Sequence[Edit]) -> int:
    """Return the upper edge of what the edits make, counted afresh."""
    edited = apply(before.transcript, Script.of(edits), CODEC)
    raws = list(edited.transcript.raws)
    return measure(OpenAIChat().read(raws), METER).count().high


def tool_step(
    name: str, output: str, *, tool: str = "ls", arguments: str = "{}"
) -> list[dict[str, Any]]:
    """Return one call and its result."""
    call = {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": output},
    ]


def said(role: str, text: str) -> dict[str, Any]:
    """Return a message of plain text."""
    return {"role": role, "content": text}


def words(n: int, word: str = "word") -> str:
    """Return a text of n tokens."""
    return " ".join([word] * n)


def joined_step(*results: str, beside: str = "") -> list[dict[str, Any]]:
    """Return a response of Anthropic's with a call for each result, and the message that has them.

    The calls are c0, c1 and so on; `beside` is what the user says in the same message.
    """
    calls = [
        {"type": "tool_use", "id": f"c{i}", "name": f"tool{i}", "input": {}}
        for i in range(len(results))
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": f"c{i}", "content": text}
        for i, text in enumerate(results)
    ]
    blocks += [{"type": "text", "text": beside}] if beside else []
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": blocks}]
