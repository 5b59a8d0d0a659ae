"""The tokens that a dialect's chat template adds around texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ullage.core.messages.media import UNKNOWN_IMAGE, ImageRule
from ullage.core.messages.size import Size


class ParallelFraming(NamedTuple):
    """Tokens around several calls of one message, if these are rendered in a special form.

    `once` is for all of them together, `call` and `result` for each; results in it are JSON
    strings.
    """

    once: Size
    call: Size
    result: Size


@dataclass(frozen=True, slots=True)
class Framing:
    """Tokens that a dialect adds around texts.

    Message, role, name and reply figures are those OpenAI publishes for its chat models (OpenAI
    cookbook, "How to count tokens with tiktoken"); for text-only messages they are exact. The
    tokens around calls, results and tools are not published, so each is a band. `tool` is for each
    tool in addition to its schema, `tools` once if there are any. `ids` says that ids of calls may
    be rendered, `names_twice` that a call's name is also rendered with its result, even if the
    result does not have it. `parallel` is for several calls of one message, or None if they take as
    much as single calls. If the template is unknown, `slack` and `opening` are extra tokens per
    message and for the whole, and `loose` says that calls and tools may not be rendered at all.
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
"""The framing for the unknown template of an unknown server. Llama 2 takes about three tokens per
message, ChatML four and Llama 3 five. Qwen's and Hermes' begin with about a hundred if there are
tools; SmolLM2's has no place for tools. Several add a system prompt of their own if none is given.
"""
