"""The tokens of each section of a window's budget: system prompt, tools, knowledge, conversation.

This module adds up measured sizes; `core.tokens.budget` has the shares and overruns. It plans
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ullage.core.errors import ConfigurationError
from ullage.core.messages.size import Size
from ullage.core.tokens.budget import SHARES
from ullage.core.tokens.counting import Meter, tool_sizes

if TYPE_CHECKING:
    from ullage.core.tokens.counting import Measure

MARKS: Final = tuple(name for name in SHARES if name != "output_buffer")
"""The sections that messages can be put into."""


def check_marks(sections: Mapping[int, str], messages: int) -> Mapping[int, str]:
    """Return the marks of messages; raises ConfigurationError for an unknown position or name."""
    for index, name in sections.items():
        if type(index) is not int or not 0 <= index < messages:
            raise ConfigurationError(
                f"sections names message {index!r}, but the {messages} messages are at 0 to "
                f"{messages - 1}"
            )
        if name not in MARKS:
            raise ConfigurationError(
                f"sections puts message {index} into {name!r}: the sections of messages are "
                f"{', '.join(MARKS)}"
            )
    return sections


def count_sections(
    measured: Measure, meter: Meter, marks: Mapping[int, str], tools: Any, output: int
) -> dict[str, int]:
    """Return the tokens of the model in each section, by their upper edges.

    `marks` names the section of messages by position. Other messages are conversation; operator
    text is system prompt. Text outside the messages other than tools is system prompt too.
    """
    schemas = tool_sizes(tools, meter)[0] if tools else Size(0, 0, 0)
    found = {
        "system_prompt": measured.fixed.high - schemas.high,
        "tools": schemas.high,
        "knowledge": 0,
        "conversation": 0,
    }
    for index, (message, size) in enumerate(zip(measured.messages, measured.sizes, strict=True)):
        default = "system_prompt" if message.is_system else "conversation"
        found[marks.get(index, default)] += size.high
    scaled = {name: measured.scale.of(Size(0, 0, high)).high for name, high in found.items()}
    scaled["system_prompt"] = max(scaled["system_prompt"] + measured.extra, 0)
    if measured.rest is not None:  # the server does not say how much of it is schemas
        scaled["tools"] = 0
        operator = found["system_prompt"] - measured.fixed.high + schemas.high
        scaled["system_prompt"] = measured.scale.of(Size(0, 0, operator)).high + measured.rest.high
    return {**scaled, "output_buffer": output}
