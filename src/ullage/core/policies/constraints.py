"""Keep what the user laid down: sentences that state a rule outlive the message around them.

Found by a few English words ("remember", "never", "must"), so it is a help and no promise: what
must surely stay is pinned by the caller. Kept newest first within a share of the target. It knows
no other strategy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ullage.core.edits import Clear, Edit
from ullage.core.transcript import asks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.core.policies.situation import Situation
    from ullage.core.transcript import Message, Transcript

SHARE: Final = 0.20
"""Share of the target that declared and found constraints may take (02-decisions 22)."""

KEPT_MARK: Final = "[ullage: kept of an earlier message] "

STATES_RULE: Final = re.compile(
    r"\b(?:remember|keep in mind|from now on|always|never|must(?:n't)?|do not|don't|important)\b",
    re.IGNORECASE,
)

SENTENCES: Final = re.compile(r"(?<=[.!?])\s+|\n+")


def rules_in(message: Message) -> str:
    """Return the sentences of a user message that state a rule, joined; "" without any."""
    if not asks(message) or len(message.parts) != 1 or message.parts[0].kind != "text":
        return ""
    text = message.parts[0].text
    if not STATES_RULE.search(text):
        return ""
    return " ".join(s.strip() for s in SENTENCES.split(text) if STATES_RULE.search(s))


def find(transcript: Transcript, count: Callable[[str], int], budget: int) -> frozenset[int]:
    """Return the positions of messages that state rules, newest first, as many as `budget` holds.

    A message takes what its rules alone take, in tokens.
    """
    found: set[int] = set()
    for index in range(len(transcript) - 1, -1, -1):
        rules = rules_in(transcript.messages[index])
        tokens = count(rules) if rules else 0
        if 0 < tokens <= budget:
            found.add(index)
            budget -= tokens
    return frozenset(found)


def plan(situation: Situation, found: Sequence[int]) -> list[Edit]:
    """Return the cutting down of these messages, where old, to the rules that they state."""
    border = situation.border()
    old = situation.units[border].start if border < len(situation.units) else len(situation.sizes)
    edits: list[Edit] = []
    for index in found:
        message = situation.transcript.messages[index]
        text = KEPT_MARK + rules_in(message)
        whole = situation.count(message.parts[0].text)
        if index < old and whole >= 2 * situation.count(text):
            edits.append(Clear(index, 0, -1, text))
    return edits
