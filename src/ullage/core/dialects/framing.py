"""What a dialect's chat template adds around texts, in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ullage.core.messages.media import UNKNOWN_IMAGE, ImageRule
from ullage.core.messages.size import Size


class ParallelFraming(NamedTuple):
    """Tokens around several calls of one message, where these are rendered in a form of their own.

    `once` is for all of them, `call` and `result` for each; results stand in it as JSON strings.
    """

    once: Size
    call: Size
    result: Size


@dataclass(frozen=True, slots=True)
class Framing:
    """Tokens that a dialect adds around texts.

    Message, role, name and reply figures are those OpenAI publishes for its chat models (OpenAI
    cookbook, "How to count tokens with tiktoken"); for text-only messages they are exact. What is
    added around calls, results and tools is not published, so it is a band. `tool` is for each
    tool beside its schema, `tools` once where there are any. `ids` says that ids of calls may be
    rendered, `names_twice` that a call's name stands with its result, whether that has it or not;
    `parallel` is what several calls of one message take, None where that is as much as calls alone.

    Where the template is unknown, `slack` and `opening` are tokens that a message and the whole
    may cost beyond that, and `loose` says that calls and tools may not be rendered at all.
    """

    message: int = 3
    role: int = 1
    name: int = 1
    reply: int = 3
    call: Size = Size(0, 6, 16)
    result: Size = Size(0, 2, 8)
    tool: Size = Size(4, 12, 24)
    tools: Size = Size(0, 0, 0)
    image: ImageRule = UNKNOWN_IMAGE
    slack: int = 0
    opening: int = 0
    loose: bool = False
    ids: bool = True
    names_twice: bool = False
    parallel: ParallelFraming | None = None


UNKNOWN_TEMPLATE: Final = Framing(
    message=2, tools=Size(0, 80, 400), slack=6, opening=64, loose=True
)
"""A template that an unknown server fills. Llama 2 takes about three tokens a message, ChatML four
and Llama 3 five; Qwen's and Hermes' open with about a hundred where there are tools, SmolLM2's
knows none; several open with a system prompt of their own where none is given."""
