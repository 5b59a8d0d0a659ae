"""What refusals, cut prompts and answers say of a window, weighed against each other.

The rules, in order:

1. An answered prompt is a fact. Nothing that was learned lowers a window under the largest one.
2. One request is one witness, however often it was sent.
3. A probe and the operator's word are lowered by two witnesses only, and never by sentences.
4. A listing, the table and an unknown window are lowered by one refusal, for ten minutes, where
   it names its numbers in fields, or a bound that is not far off; else by two witnesses, too.
5. A prompt that seems to be cut needs a second one, unless the server read exactly as many
   tokens as a cut leaves.

Where two witnesses are wanted, the second smallest bound holds: one that lies moves nothing. It
is pure, keeps nothing, and knows no server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.tokens.claim import CAPS, Claim, order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PASSING_S: Final = 600.0
"""Seconds for which one witness alone lowers a window: a trial follows soon after a mistake."""

FAR_OFF: Final = 4
"""A sentence alone does not lower a published window to less than one in so many tokens: content
filters quote what users wrote, and limits of a tier name their code."""

SAME: Final = 0.02
"""How far two reports of cut prompts may lie apart: a cut leaves the same number each time."""

MOST: Final = 8
"""Witnesses of each source that are kept for one model at one endpoint: the rules need two."""


GROWN: Final = 1.25
"""How many times larger an answered prompt must be to be written down anew."""


def find_floor(claims: Iterable[Claim]) -> int:
    """Return the largest prompt that was answered, in tokens; 0 if none. Output is no prompt."""
    prompts = (c.tokens for c in claims if c.source == "answer" and c.kind != "output")
    return max(prompts, default=0)


def find_cap(
    claims: Sequence[Claim], base: Claim | None, floor: int, now: float | None = None
) -> Claim | None:
    """Return what was learned and lowers the window that `base` sets, None where nothing does.

    `floor` is the largest answered prompt in tokens, `now` the time in seconds since the epoch;
    without it nothing is too old.
    """
    shared = [c for c in claims if c.source == "contention" and not _is_over(c, now)]
    firm = base is not None and (base.source == "override" or base.kind == "allocated")
    held = [c for c in claims if c.source in ("refusal", "truncation") and c.tokens >= floor]
    if firm:
        held = [c for c in held if c.grounds != "words"]
    found = [*shared, *_agree(held)]
    if not firm:
        found += [c for c in held if _is_enough(c, base) and not _is_over(c, now)]
    return min(found, key=order, default=None)


def confirm(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return what may be kept beyond the process: what more than one request said.

    Of answers that is the second largest one, since the largest is one event.
    """
    held = tuple(claims)
    answered = _second([c for c in held if c.source == "answer"], largest=True)
    return (*_agree(held), *answered)


def says_more(confirmed: Sequence[Claim], before: Sequence[Claim]) -> bool:
    """Tell whether what was confirmed is worth writing down again.

    Prompts of a conversation grow with each turn: an answer counts once it is a quarter larger.
    """
    if [c for c in confirmed if c.source != "answer"] != [c for c in before if c.source in CAPS]:
        return True
    return find_floor(confirmed) > GROWN * find_floor(before)


def add(claims: Iterable[Claim], claim: Claim) -> tuple[Claim, ...]:
    """Return the claims with one more, bounded: of answers the two largest, else the newest.

    A request that was heard before takes its earlier place: it is the same witness.
    """
    kept = [c for c in claims if (c.source, c.exchange) != (claim.source, claim.exchange)]
    if claim.source == "answer":
        same = (c for c in claims if c.source == "answer" and c.exchange == claim.exchange)
        largest = max((claim, *same), key=order)
        answers = sorted((*(c for c in kept if c.source == "answer"), largest), key=order)[-2:]
        return (*(c for c in kept if c.source != "answer"), *answers)
    others = [c for c in kept if c.source != claim.source]
    return (*others, *[c for c in kept if c.source == claim.source][1 - MOST :], claim)


def corroborate(own: Sequence[Claim], others: Sequence[Sequence[Claim]]) -> tuple[Claim, ...]:
    """Return which claims of other parties hold for one whose `own` claims these are.

    What was answered does, since it only says that a window is no smaller. A limit does once two
    parties said it: what one alone says may be what its own request made the server say.
    """
    heard = [own, *others]
    found: list[Claim] = []
    for number, claims in enumerate(others, 1):
        beside = [c for at, more in enumerate(heard) if at != number for c in more]
        found += [c for c in claims if c.source == "answer" or any(_is_same(c, o) for o in beside)]
    return tuple(found)


def _is_same(one: Claim, other: Claim) -> bool:
    """Tell whether two claims say the same limit."""
    if (one.source, one.kind) != (other.source, other.kind):
        return False
    return abs(one.tokens - other.tokens) <= SAME * max(one.tokens, other.tokens)


def are_alike(one: Claim, other: Claim) -> bool:
    """Tell whether two cut prompts were read at one size, or below one bound that many have."""
    if one.tokens == other.tokens:
        return True
    apart = abs(one.reported - other.reported)
    return apart <= SAME * max(one.reported, other.reported)


def _agree(held: Sequence[Claim]) -> list[Claim]:
    """Return the bounds that two witnesses support: those of refusals, those of cut prompts."""
    cut = [c for c in held if c.source == "truncation"]
    alike = [c for c in cut if c.times > 1 or any(_are_two(c, o) and are_alike(c, o) for o in cut)]
    return [*_second([c for c in held if c.source == "refusal"]), *_second(alike)]


def _second(held: Sequence[Claim], *, largest: bool = False) -> list[Claim]:
    """Return the second smallest (or largest) of several witnesses, none where there is one."""
    ordered = sorted(held, key=order, reverse=largest)
    for place, claim in enumerate(ordered):
        if claim.times > 1:
            return [claim]
        if place and _are_two(claim, ordered[0]):
            return [replace(claim, times=2)]
    return []


def _are_two(one: Claim, other: Claim) -> bool:
    return one.exchange != other.exchange


def _is_enough(claim: Claim, base: Claim | None) -> bool:
    """Tell whether one witness lowers a window that nobody vouches for."""
    if claim.grounds == "structured" or claim.source == "truncation":
        return claim.grounds == "structured"
    return base is None or claim.tokens * FAR_OFF >= base.tokens


def _is_over(claim: Claim, now: float | None) -> bool:
    return now is not None and now - claim.at >= PASSING_S
