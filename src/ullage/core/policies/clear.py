"""clear: old tool results and oversized call arguments make way for a one-line placeholder.

Calls stay, so the model still sees what was done. Oldest first, only as many as are needed, never
in the protected tail, and never chosen by words such as "error". It knows no other strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ullage.core.edits import Clear, Edit

if TYPE_CHECKING:
    from ullage.core.policies.situation import Situation
    from ullage.core.transcript import Message

RESULT_MARK: Final = "[ullage: result of {name} cleared, {tokens:,} tokens]"
CALL_MARK: Final = '{{"ullage_cleared": "arguments, {tokens:,} tokens"}}'

WORTH: Final = 64
"""Tokens that a single clear must free: a placeholder is about 20, and each edit breaks a cache."""


def plan(situation: Situation) -> list[Edit]:
    """Return clears, oldest first, until the target is met or nothing is left to clear."""
    over = situation.total - situation.target
    edits: list[Edit] = []
    messages = situation.transcript.messages
    for unit in situation.units[: situation.border()]:
        asked = (call for m in messages[unit.start : unit.stop] for call in m.calls)
        names = {call.id: call.name for call in asked}
        for index in range(unit.start, unit.stop):
            if over <= 0:
                return edits
            if index in situation.pins or situation.sizes[index] < WORTH:
                continue
            for edit, freed in _clears(index, messages[index], names, situation):
                edits.append(edit)
                over -= freed
    return edits


def _clears(
    index: int, message: Message, names: dict[str, str], situation: Situation
) -> list[tuple[Edit, int]]:
    """Return the clears that are worth it in one message, each with the tokens it frees."""
    found: list[tuple[Edit, int]] = []
    for position, part in enumerate(message.parts):
        if part.kind == "result":
            tokens = situation.count(part.text)
            name = names.get(part.answers or "") or "a tool"
            text = RESULT_MARK.format(name=name, tokens=tokens)
            freed = tokens - situation.count(text)
            if freed >= WORTH:
                found.append((Clear(index, position, -1, text), freed))
    for position, call in enumerate(message.calls):
        tokens = situation.count(call.arguments)
        text = CALL_MARK.format(tokens=tokens)
        freed = tokens - situation.count(text)
        if freed >= WORTH:
            found.append((Clear(index, -1, position, text), freed))
    return found
