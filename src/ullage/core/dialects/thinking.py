"""The thinking budget in a request: lowered if the limit of the answer was lowered to it or below.

Anthropic counts thinking into `max_tokens` and refuses a `thinking.budget_tokens` that is not less
(Messages API, "Extended thinking", 2026), also on Bedrock; so does OpenRouter with its
`reasoning.max_tokens`. Gemini counts `thinkingBudget` into `maxOutputTokens` and refuses nothing:
thinking may use up the whole answer. This module reads no messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ullage.core.messages.fields import field_of

LEAST_THINKING: Final = 1_024
"""Anthropic's `budget_tokens`: at least 1,024 and less than `max_tokens` (Messages API reference,
2026)."""

LEAST_ANSWER: Final = 1_024
"""Tokens that stay for the answer in addition to thinking, or a quarter of all. Our choice."""

LEAST_GEMINI: Final = 512
"""The least `thinkingBudget` that every model of Gemini 2.5 accepts (Gemini API, "Thinking")."""


class _Budget(NamedTuple):
    """The keys of a budget, its least value, and the value of the field without thinking."""

    keys: tuple[str, ...]
    least: int
    off: Mapping[str, Any] | None


_GEMINI: Final = ("thinkingBudget", "thinking_budget")

_BUDGETS: Final[Mapping[str, _Budget]] = {
    "thinking": _Budget(("budget_tokens",), LEAST_THINKING, {"type": "disabled"}),
    "reasoning": _Budget(("max_tokens",), LEAST_THINKING, {"enabled": False}),
    "thinkingConfig": _Budget(_GEMINI, LEAST_GEMINI, None),
    "thinking_config": _Budget(_GEMINI, LEAST_GEMINI, None),
}
"""By the name of the field that holds it."""

_AROUND: Final = (
    "additionalModelRequestFields",
    "additional_model_request_fields",
    "extra_body",
    "generationConfig",
    "generation_config",
    "config",
)
"""Fields that may hold such a field: those of Bedrock, of the SDKs, and of Gemini."""


def lower_thinking(fields: Any, asked: int, given: int) -> dict[str, Any]:
    """Return the changed fields of a request whose thinking budget leaves a lowered answer no room.

    `asked` is the original limit of the answer, `given` the one that is sent, in tokens. A budget
    is halved until it fits, so that it stays the same over many requests: each change costs a
    provider's cache. If thinking would fall below a provider's least value, it is turned off, if
    possible. A budget over `asked` stays, because it is allowed with thinking between tool calls.
    Fields without a change are not in the result.
    """
    if given >= asked:
        return {}
    found = _lower_held(fields, asked, given)
    for name in _AROUND:
        inner = field_of(fields, name)
        made = {} if inner is None else _lower_held(inner, asked, given)
        if made and _can_change(inner):
            found[name] = _change(inner, made)
    return found


def _lower_held(fields: Any, asked: int, given: int) -> dict[str, Any]:
    """Do as `lower_thinking` with the budgets directly in these fields."""
    found: dict[str, Any] = {}
    most = given - min(LEAST_ANSWER, given // 4)
    for name, kind in _BUDGETS.items():
        held = field_of(fields, name)
        key = next((k for k in kind.keys if held is not None and _is_budget(held, k, asked)), None)
        if key is not None and field_of(held, key) > max(most, 0):
            found[name] = _lower(held, kind, key, most)
    if found.get("thinking") == _BUDGETS["thinking"].off:
        found |= _drop_clearing(fields)
    return found


def _is_budget(held: Any, key: str, asked: int) -> bool:
    """Tell whether a field that can be changed holds a budget within the answer."""
    budget = field_of(held, key)
    return type(budget) is int and 0 < budget < asked and _can_change(held)


def _lower(held: Any, kind: _Budget, key: str, most: int) -> Any:
    """Return a field with its budget halved until it fits, or with thinking off."""
    budget = lowered = field_of(held, key)
    while lowered > max(most, 0):
        lowered //= 2
    if lowered >= kind.least or kind.off is None:
        return _change(held, {key: max(lowered, min(budget, kind.least))})
    return dict(kind.off)


def _drop_clearing(fields: Any) -> dict[str, Any]:
    """Return the provider's own edits without those of thinking, which need thinking.

    "`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive", Anthropic.
    """
    edits = field_of(fields, "context_management")
    listed = field_of(edits, "edits") if isinstance(edits, Mapping) else None
    if not isinstance(listed, list):
        return {}
    left = [e for e in listed if not str(field_of(e, "type")).startswith("clear_thinking")]
    return {} if len(left) == len(listed) else {"context_management": {**edits, "edits": left}}


def _can_change(holder: Any) -> bool:
    """Tell whether an object with fields can be copied with other values."""
    return isinstance(holder, Mapping) or hasattr(holder, "model_copy")


def _change(holder: Any, changed: Mapping[str, Any]) -> Any:
    """Return a copy of a mapping or of an SDK object with other values."""
    if isinstance(holder, Mapping):
        return {**holder, **changed}
    return holder.model_copy(update=dict(changed))
