"""Which messages of the user state a rule that later turns must keep to.

Found by a few English words ("remember", "never", "must"), so it is a help and no promise: what
must surely stay is pinned by the caller. Kept newest first within a share of the target. It knows
no strategy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ullage.core.transcript import asks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.transcript import Transcript

SHARE: Final = 0.20
"""Share of the target that declared and found constraints may take (02-decisions 22)."""

STATES_RULE: Final = re.compile(
    r"\b(?:remember|keep in mind|from now on|always|never|must(?:n't)?|do not|don't|important)\b",
    re.IGNORECASE,
)


def find(transcript: Transcript, sizes: Sequence[int], budget: int) -> frozenset[int]:
    """Return the positions of rule-stating user messages, newest first, within `budget` tokens."""
    found: set[int] = set()
    for index in range(len(transcript) - 1, -1, -1):
        message = transcript.messages[index]
        if not asks(message) or sizes[index] > budget or not STATES_RULE.search(message.text):
            continue
        found.add(index)
        budget -= sizes[index]
    return frozenset(found)
