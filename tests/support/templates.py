"""Chat templates that do what those of families of models do to roles and reasoning, and no more.

`STRICT` counts every message behind the system message, as Gemma's and Llama 2's templates do;
`TOOLS` leaves calls and results out, as those of Mistral, Ministral and Devstral do. Both show
texts alone. `FAMILIES` show calls and tools as well, where the family knows any. GLM 4.5 and
Qwen3 drop the reasoning of messages before the last one of the user, in its own field or in the
text; GLM leaves an empty pair of marks behind, and Qwen3 takes results for what the user says.
Gemma 3 and Mistral have no place for a field of reasoning. Sources: `chat_template` of
zai-org/GLM-4.5, Qwen/Qwen3-8B and google/gemma-3-12b-it, mistral-common's template for its
tokenizer of version 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

_TOOLS: Final = (
    "{% if tools %}<|tools|>{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
)
_CALLS: Final = (
    "{% if m.tool_calls %}{% for call in m.tool_calls %}<|call|>{{ call.function.name }} "
    "{{ call.function.arguments if call.function.arguments is string "
    "else call.function.arguments | tojson }}\n{% endfor %}{% endif %}"
)
_LAST: Final = (
    "{% set at = namespace(asked=-1) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set at.asked = loop.index0 %}{% endif %}{% endfor %}"
)
_PART: Final = (
    "{% set said = m.content if m.content is string else '' %}"
    "{% set thought = m.reasoning_content if m.reasoning_content is string else '' %}"
    "{% if not thought and '</think>' in said %}"
    "{% set thought = said.split('</think>')[0].split('<think>')[-1] %}"
    "{% set said = said.split('</think>')[-1] %}{% endif %}"
)


def _drop_old(empty: str, result: str) -> str:
    """Return a template that shows reasoning behind the user's last message, `empty` before."""
    return (
        f"{_TOOLS}{_LAST}{{% for m in messages %}}{_PART}"
        "{% if m.role == 'assistant' %}<|assistant|>"
        "{% if loop.index0 > at.asked and thought %}<think>{{ thought }}</think>"
        f"{{% else %}}{empty}{{% endif %}}"
        f"{{{{ said }}}}\n{_CALLS}"
        f"{{% elif m.role == 'tool' %}}{result}{{{{ said }}}}\n"
        "{% else %}<|{{ m.role }}|>{{ said }}\n{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )


FAMILIES: Final[Mapping[str, str]] = {
    "glm": _drop_old("<think></think>", "<|observation|>"),
    "qwen3": _drop_old("", "<|user|><tool_response>"),
    "gemma": STRICT,
    "mistral": _TOOLS + TOOLS.replace(_SHOW, _SHOW.replace("\n", "") + _CALLS + "\n"),
}
"""Templates by family."""


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
