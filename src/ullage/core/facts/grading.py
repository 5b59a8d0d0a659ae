"""Grade the evidence for a rule in a sentence: the worth of its cues, added up.

For speed, rare cues are searched together, cues at the start of a sentence only there, and some
only if a simple part of them occurs. This module knows no place and no kind.
"""

from __future__ import annotations

from typing import Final

from ullage.core.facts import cues
from ullage.core.facts.patterns import BeyondAscii, LatePattern

WORTH: Final[tuple[tuple[LatePattern, int, tuple[str, ...]], ...]] = (
    (cues.FORBIDS, 3, cues.FORBIDDING),
    (cues.PREFERS, 2, ("i ", "i'd", "we ", "we'd", "our ")),
    (cues.SAYS_NO, 2, ("no ", "not ", "nothing ", "none ")),
)
"""The worth of cues, and parts. Every matching sentence has one of the parts: without one, the cue
is not searched."""

WORTH_AT_HEAD: Final[tuple[tuple[LatePattern, int, tuple[str, ...]], ...]] = (
    (cues.STATES, 1, cues.STATING),
    (cues.PLEADS, 2, ("can ", "could ", "would ", "will ")),
    (cues.NARRATES, -4, ("",)),
    (cues.PAST, -3, ("",)),
)
"""The same for cues that can only match from the start of a sentence."""

WORTH_OPENING: Final[tuple[tuple[LatePattern, int], ...]] = (
    (cues.DENIES, 2),
    (cues.CONDITION, 2),
    (cues.DISTRIBUTES, 1),
)
"""The same for cues whose first words `cues.OPENS` finds."""

WORTH_JOINED: Final[tuple[tuple[cues.CuePattern, int], ...]] = (
    (cues.PROHIBITS, 3),
    (cues.OBLIGES, 3),
    (cues.URGES, 2),
    (cues.EMBRACES, 1),
    (cues.HABITS, 1),
    (cues.MATTERS, 2),
    (cues.REMINDS, 5),
    (cues.PLACES, 1),
    (cues.LATIN, 3),
    (cues.LIMITS_ELSEWHERE, 2),
    (cues.DENIES_ELSEWHERE, 1),
    (cues.IDIOMS, -4),
)
"""The same for cues that are searched together."""

JOINED: Final = cues.join_cues(*(cue for cue, _ in WORTH_JOINED))
"""Finds the first of these cues: most lines of data have none, and are searched only once."""

WORTH_OF_SCRIPTS: Final[tuple[tuple[BeyondAscii, int], ...]] = (
    (cues.SCRIPTS, 3),
    (cues.SCRIPTS_LIMIT, 2),
    (cues.SCRIPTS_DENY, 1),
)
"""The same for sentences with a letter of such a script."""


def find_worth(lower: str, *, data: bool = False) -> int:
    """Return the evidence for a rule in a sentence in small letters.

    `data` is long and has few cues: there the cues are searched together. The joined pattern takes
    as long to compile as all of them, so it is not used for typed text.
    """
    holds = lower.__contains__
    found = [worth for cue, worth, parts in WORTH if any(map(holds, parts)) and cue.search(lower)]
    found += [
        worth for cue, worth, parts in WORTH_AT_HEAD if any(map(holds, parts)) and cue.match(lower)
    ]
    opens = cues.OPENS.match(lower) is not None
    if opens:
        found += [worth for cue, worth in WORTH_OPENING if cue.match(lower)]
    if (opens and cues.COMMANDS.match(lower)) or cues.COMMANDS_WITHIN.search(lower):
        found.append(2)
    joined = not data or JOINED.stands_in(lower)
    if joined:
        found += [worth for cue, worth in WORTH_JOINED if cue.search(lower)]
    if not lower.isascii() and max(lower) >= cues.FIRST_SCRIPT:
        found += [worth for cue, worth in WORTH_OF_SCRIPTS if cue.search(lower)]
    if opens and cues.ASKS_ONCE.match(lower) and 3 not in found:
        found += [] if joined and cues.URGES.search(lower) else [-2]
    return sum(found)
