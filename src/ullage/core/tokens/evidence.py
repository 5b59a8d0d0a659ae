"""Evidence about a window: refusals, cut prompts and answers, weighed against each other.

The rules, in order:

1. An answered prompt is a fact of its time. It refutes every smaller bound that was learned before
   it. Only two witnesses after it lower a window below it: then the server has changed.
2. One request is one witness, however often it was sent.
3. Only two witnesses lower a probe or the operator's setting, and sentences never do.
4. One refusal lowers a listing, the table or an unknown window, for ten minutes, if it names its
   numbers in fields, or a bound that is not far off. Otherwise two witnesses are needed.
5. A prompt that seems to be cut needs a second one, unless the server read exactly the number of
   tokens that a cut leaves.

If two witnesses are needed, the second smallest bound holds: one false witness changes nothing.
This module is pure, keeps nothing, and knows no server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.tokens.claim import CAPS, Claim, order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PASSING_S: Final = 600.0
"""Seconds that a single witness lowers a window. After a mistake, the next try comes soon."""

FAR_OFF: Final = 4
"""A sentence alone does not lower a published window to less than one part in this many: content
filters quote users' text, and limits of a tier have their own code."""

SAME: Final = 0.02
"""The allowed relative difference of two reports of cut prompts: a cut leaves the same number each
time."""

MOST: Final = 8
"""Witnesses of each source that are kept for one model at one endpoint: the rules need two."""


GROWN: Final = 1.25
"""An answered prompt is recorded again if it is this many times larger."""


REFUTABLE: Final = frozenset({"refusal", "truncation"})
"""Sources of learned bounds that a larger answered prompt refutes."""

OVERRULES_S: Final = 3600.0
"""Seconds for which refusals overrule a prompt that was answered before them. A gateway may have
used another server for a moment; if the server has changed, its next refusals renew them."""


def find_floor(claims: Iterable[Claim], now: float | None = None, *, firm: bool = False) -> int:
    """Return the largest answered prompt that still counts, in tokens, 0 if unknown.

    A prompt does not count for `OVERRULES_S` after two refusals of a smaller size that both came
    after it. Sentences do not overrule it if a probe or the operator set the window (`firm`).
    Output claims are ignored. `now` is the time in seconds since the epoch; without it no refusal
    is too old.
    """
    held = [c for c in claims if c.kind != "output"]
    answers = [c.tokens for c in held if c.source == "answer"]
    if not answers:
        return 0
    refusals = [c for c in _drop_refuted(held) if c.source == "refusal"]
    if firm:
        refusals = [c for c in refusals if c.grounds != "words"]
    recent = [c for c in refusals if now is None or now - c.at < OVERRULES_S]
    least = min((c.tokens for c in _second(recent)), default=max(answers))
    return max((tokens for tokens in answers if tokens <= least), default=0)


def _drop_refuted(claims: Iterable[Claim]) -> list[Claim]:
    """Return the refusals and cut prompts that no larger prompt, answered later, refutes."""
    largest, live = 0, list[Claim]()
    # From the newest on; of one time the answers first.
    for claim in sorted(claims, key=_find_turn, reverse=True):
        if claim.source == "answer":
            largest = max(largest, claim.tokens)
        elif claim.source in REFUTABLE and claim.tokens >= largest:
            live.append(claim)
    return live[::-1]


def _find_turn(claim: Claim) -> tuple[float, bool]:
    return claim.at, claim.source == "answer"


def _refutes(answer: Claim, claim: Claim) -> bool:
    later = answer.at >= claim.at
    return claim.source in REFUTABLE and later and answer.tokens > claim.tokens


def find_cap(
    claims: Sequence[Claim], base: Claim | None, floor: int, now: float | None = None
) -> Claim | None:
    """Return the learned claim that lowers the window set by `base`, None if no claim does.

    `floor` is the largest answered prompt in tokens. `now` is the time in seconds since the epoch;
    without it no claim is too old.
    """
    shared = [c for c in claims if c.source == "contention" and not _is_over(c, now)]
    firm = base is not None and (base.source == "override" or base.kind == "allocated")
    held = [c for c in _drop_refuted(claims) if c.tokens >= floor]
    if firm:
        held = [c for c in held if c.grounds != "words"]
    found = [*shared, *_agree(held)]
    if not firm:
        found += [c for c in held if _is_enough(c, base) and not _is_over(c, now)]
    return min(found, key=order, default=None)


def confirm(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return the claims to keep beyond the process: those that more than one request supports.

    For answers this is the second largest one, because the largest is a single event.
    """
    held = tuple(claims)
    answered = _second([c for c in held if c.source == "answer"], largest=True)
    return (*_agree(_drop_refuted(held)), *answered)


def says_more(confirmed: Sequence[Claim], before: Sequence[Claim]) -> bool:
    """Tell whether the confirmed claims are worth recording again.

    Prompts of a conversation grow with each turn: an answer counts if it is a quarter larger.
    """
    if [c for c in confirmed if c.source != "answer"] != [c for c in before if c.source in CAPS]:
        return True
    return find_floor(confirmed) > GROWN * find_floor(before)


def add(claims: Iterable[Claim], claim: Claim) -> tuple[Claim, ...]:
    """Return the claims with one more, bounded: the newest of each source.

    The two largest answers stay, too. An answer removes the bounds that it refutes. A request
    that was heard before replaces its earlier claim: it is the same witness.
    """
    kept = [c for c in claims if not _is_of(c, claim)]
    if claim.source == "answer":
        same = (claim, *(c for c in claims if _is_of(c, claim)))
        largest = replace(max(same, key=order), at=max(c.at for c in same))
        answers = sorted((*(c for c in kept if c.source == "answer"), largest), key=order)
        newest = [c for c in answers[:-2] if c is largest]
        bounds = [c for c in kept if c.source != "answer" and not _refutes(largest, c)]
        return (*bounds, *newest, *answers[-2:])
    others = [c for c in kept if c.source != claim.source]
    return (*others, *[c for c in kept if c.source == claim.source][1 - MOST :], claim)


def _is_of(one: Claim, other: Claim) -> bool:
    """Tell whether two claims are of one source and one request."""
    return (one.source, one.exchange) == (other.source, other.exchange)


def corroborate(own: Sequence[Claim], others: Sequence[Sequence[Claim]]) -> tuple[Claim, ...]:
    """Return the claims of other parties that hold for a party with these `own` claims.

    Answers always do, because they only say that a window is not smaller. A limit does if two
    parties said it: a single party's request may have caused the server's statement.
    """
    heard = [own, *others]
    found: list[Claim] = []
    for number, claims in enumerate(others, 1):
        beside = [c for at, more in enumerate(heard) if at != number for c in more]
        found += [c for c in claims if c.source == "answer" or any(_is_same(c, o) for o in beside)]
    return tuple(found)


def _is_same(one: Claim, other: Claim) -> bool:
    """Tell whether two claims state the same limit."""
    if (one.source, one.kind) != (other.source, other.kind):
        return False
    return abs(one.tokens - other.tokens) <= SAME * max(one.tokens, other.tokens)


def are_alike(one: Claim, other: Claim) -> bool:
    """Tell whether two cut prompts were read at about one size, or point to the same bound."""
    if one.tokens == other.tokens:
        return True
    apart = abs(one.reported - other.reported)
    return apart <= SAME * max(one.reported, other.reported)


def _agree(held: Sequence[Claim]) -> list[Claim]:
    """Return the bounds that two witnesses support, of refusals and of cut prompts."""
    cut = [c for c in held if c.source == "truncation"]
    alike = [c for c in cut if c.times > 1 or any(_are_two(c, o) and are_alike(c, o) for o in cut)]
    return [*_second([c for c in held if c.source == "refusal"]), *_second(alike)]


def _second(held: Sequence[Claim], *, largest: bool = False) -> list[Claim]:
    """Return the second smallest (or largest) of several witnesses, [] if there is only one.

    If several state the same size, the newest ones count.
    """
    ordered = sorted(sorted(held, key=_find_turn, reverse=True), key=order, reverse=largest)
    for place, claim in enumerate(ordered):
        if claim.times > 1:
            return [claim]
        if place and _are_two(claim, ordered[0]):
            return [replace(claim, times=2)]
    return []


def _are_two(one: Claim, other: Claim) -> bool:
    return one.exchange != other.exchange


def _is_enough(claim: Claim, base: Claim | None) -> bool:
    """Tell whether one witness is enough to lower an unconfirmed window."""
    if claim.grounds == "structured" or claim.source == "truncation":
        return claim.grounds == "structured"
    return base is None or claim.tokens * FAR_OFF >= base.tokens


def _is_over(claim: Claim, now: float | None) -> bool:
    return now is not None and now - claim.at >= PASSING_S
