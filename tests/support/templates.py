"""Chat templates that do with roles and reasoning what those of families do, and no more.

`STRICT` counts every message behind the system message, as Gemma's and Llama 2's templates do;
`TOOLS` leaves calls and results out of that, as those of Mistral, Ministral and Devstral do.
Neither has a place for reasoning. `SINCE_ASKED` keeps the reasoning behind the last words of a
person, as Qwen 3's does, `SINCE_USER` that behind the last message of role user, as GLM's does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NoReturn

import jinja2
import jinja2.sandbox

_REST: Final = (
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"
    "{% set at = namespace(place=0) %}"
)
_RAISE: Final = "{{ raise_exception('%sonversation roles must alternate user/assistant/...') }}"
_SHOW: Final = "<|{{ m.role }}|>{{ m.content if m.content is string else '' }}\n"

STRICT: Final = (
    f"{_REST}{{% for m in rest %}}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}" + _RAISE % "C" + "{% endif %}"
    f"{_SHOW}{{% endfor %}}<|assistant|>"
)
TOOLS: Final = (
    f"{_REST}{{% for m in rest %}}"
    "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
    "{% if (m.role == 'user') != (at.place % 2 == 0) %}"
    + _RAISE
    % "After the optional system message, c"
    + "{% endif %}{% set at.place = at.place + 1 %}{% endif %}"
    f"{_SHOW}{{% endfor %}}<|assistant|>"
)


_THINK: Final = (
    "{% if m.reasoning_content and loop.index0 > last.place %}"
    "(thought: {{ m.reasoning_content }}){% endif %}"
)
_CALLS: Final = (
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}"
)
_LAST: Final = "{% set last = namespace(place=-1) %}{% for m in messages %}{% if "
_PLACED: Final = " %}{% set last.place = loop.index0 %}{% endif %}{% endfor %}"
_EACH: Final = (
    "{% for m in messages %}<|{{ m.role }}|>" + _THINK + "{{ m.content or '' }}" + _CALLS
    + "\n{% endfor %}<|assistant|>"
)  # fmt: skip
_SPOKEN: Final = "m.role == 'user' and not (m.content or '').startswith('<tool_response>')"

SINCE_USER: Final = f"{_LAST}m.role == 'user'{_PLACED}{_EACH}"
SINCE_ASKED: Final = f"{_LAST}{_SPOKEN}{_PLACED}{_EACH}"


class Refused(Exception):  # noqa: N818 - what a template raises
    """A template did not take the messages."""


def render(template: str, messages: Sequence[Any]) -> str:
    """Return the prompt; raises Refused in the template's words."""
    return _compile(template).render(messages=messages)


@cache
def _compile(template: str) -> jinja2.Template:
    def refuse(text: str) -> NoReturn:
        raise Refused(text)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(template)
    made.globals["raise_exception"] = refuse
    return made
