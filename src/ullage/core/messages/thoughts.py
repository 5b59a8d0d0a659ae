"""Reasoning in messages: in parts of its own, and in the text of answers, between marks.

Servers without a parser of reasoning give it as text, clients send it back so, and the chat
templates of Qwen3, GLM and DeepSeek R1 cut it out again (`content.split('</think>')`). It counts
nothing and drops nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ullage.core.messages.transcript import Message, Transcript

END: Final = "</think>"
"""What stands behind reasoning in a text; templates take the last one."""

BEGIN: Final = "<think>"
"""What stands before reasoning; without an end behind it the answer was cut within."""


def drop_thoughts(text: str) -> str:
    """Return the text of an answer without the reasoning in it."""
    said = text.rpartition(END)[2]
    return "" if said.lstrip().startswith(BEGIN) else said.lstrip() if END in text else text


def find_thoughts(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the texts of reasoning in messages, those in the text of answers with their marks."""
    for message in messages:
        for part in message.parts:
            if part.kind == "reasoning":
                yield part.text
            elif part.kind == "text" and message.role == "assistant" and END in part.text:
                yield part.text[: part.text.rindex(END) + len(END)]


def holds_thoughts(transcript: Transcript) -> bool:
    """Tell whether any message holds reasoning; of a history that grew only what is new is read."""
    done, found = transcript.memo.get(_THOUGHTS, (0, False))
    if done < len(transcript) and not found:
        new = transcript.messages[done:]
        found = any(m.has_reasoning for m in new) or any(True for _ in find_thoughts(new))
        transcript.memo[_THOUGHTS] = (len(transcript), found)
    return bool(found)


_THOUGHTS: Final = "thoughts"
