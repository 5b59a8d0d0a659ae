"""Reasoning in messages: in parts of its own, and between marks in the text of answers.

Servers without a reasoning parser return it as text, and clients send it back that way. The chat
templates of Qwen3, GLM and DeepSeek R1 then cut it out (`content.split('</think>')`). This module
counts nothing and drops nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ullage.core.messages.transcript import Message, Transcript

END: Final = "</think>"
"""The mark after reasoning in a text; templates use the last one."""

BEGIN: Final = "<think>"
"""The mark before reasoning; without an end mark the answer was cut within it."""


def drop_thoughts(text: str) -> str:
    """Return the text of an answer without the reasoning in it."""
    said = text.rpartition(END)[2]
    return "" if said.lstrip().startswith(BEGIN) else said.lstrip() if END in text else text


def find_thoughts(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the reasoning texts in messages; reasoning in an answer's text includes its marks."""
    for message in messages:
        for part in message.parts:
            if part.kind == "reasoning":
                yield part.text
            elif part.kind == "text" and message.role == "assistant" and END in part.text:
                yield part.text[: part.text.rindex(END) + len(END)]


def holds_thoughts(transcript: Transcript) -> bool:
    """Tell whether any message has reasoning; in a grown history only new messages are read."""
    done, found = transcript.memo.get(_THOUGHTS, (0, False))
    if done < len(transcript) and not found:
        new = transcript.messages[done:]
        found = any(m.has_reasoning for m in new) or any(True for _ in find_thoughts(new))
        transcript.memo[_THOUGHTS] = (len(transcript), found)
    return bool(found)


_THOUGHTS: Final = "thoughts"
