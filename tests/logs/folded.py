"""A fold as plain JSON, to be compared with what was written down when a log was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ullage.core.dialects.usage import Usage
from ullage.core.session.log.fold import Fold


def folded(state: Fold) -> dict[str, Any]:
    """Return all that a fold tells, the data of events included."""
    return {
        "session": state.session,
        "head": state.head,
        "items": [told(item) for item in state.items],
        "open_calls": [call.seq for call in state.open_calls],
        "repairs": [dict(draft.data) for draft in state.repairs("resumed")],
        "checkpoints": told(state.checkpoints),
        "turn": None if state.turn is None else told(state.turn),
        "usage": told(state.usage),
        "skills": state.skills,
        "created": told(state.created),
        "forked": told(state.forked),
        "strays": state.strays,
        "unknown": state.unknown,
    }


RECORDED = {"LoggedCall": "Call", "FailedUser": "Failed", "ActivatedSkill": "Skill"}
"""What the golden files call the types that have another name today."""

ADDED = frozenset({"link"})
"""Fields that the golden files do not have, and that nothing in them fills."""


def told(value: Any) -> Any:
    """Return a value as JSON has it; a named tuple with its name and fields."""
    if hasattr(value, "_asdict"):
        name = type(value).__name__
        fields = {k: v for k, v in value._asdict().items() if v or k not in ADDED}
        return {"": RECORDED.get(name, name), **told(fields)}
    if isinstance(value, Usage):
        return {name: getattr(value, name) for name in type(value).__slots__}
    if isinstance(value, Mapping):
        return {key: told(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [told(inner) for inner in value]
    return value
