"""The aftermath of a compaction, computed when the next one is due, and the best next target.

It covers how long the compaction lasted, which calls were repeated after it, and which dropped
content was requested again. These numbers and prices decide how deep the next compaction goes. This
module reads histories and knows no guard, no store and no clock.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.faults import list_keys
from ullage.core.tokens.budget import SOON
from ullage.core.tokens.cost import find_cache_rates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.cost import Price

NEAR: Final = 20
"""A repeated call within this many answers after a compaction counts as its consequence."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The events between a compaction and the next one.

    `answers` is the number of answers since. Among the `calls` in the first 20 answers, `repeated`
    had been made before, word for word. Among the `usual_calls` in the 20 answers before the
    compaction, `usual_repeated` had. `faults` is the number of dropped items requested again,
    `fault_tokens` their size in the history.
    """

    answers: int
    calls: int
    repeated: int
    usual_calls: int
    usual_repeated: int
    faults: int
    fault_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def review(
    messages: Sequence[Message], place: int, faulted: Sequence[int], faults: int
) -> Aftermath:
    """Return the aftermath of a compaction that was planned when a history had `place` messages.

    `faulted` are the sizes, in tokens, of the messages that bring dropped content back.
    """
    answers = sum(m.role == "assistant" for m in messages[place:])
    before = sum(m.role == "assistant" for m in messages[:place])
    made = list(_list_calls(messages))
    behind = [again for answer, again in made if before <= answer < before + NEAR]
    ahead = [again for answer, again in made if before - NEAR <= answer < before]
    return Aftermath(
        answers, len(behind), sum(behind), len(ahead), sum(ahead), faults, sum(faulted)
    )


def _list_calls(messages: Sequence[Message]) -> Iterator[tuple[int, bool]]:
    """Yield each call: the number of its answer, and whether the same call was made before."""
    seen: set[str] = set()
    answer = -1
    for message in messages:
        answer += message.role == "assistant"
        for key in list_keys(message):
            if key:
                yield answer, key in seen
                seen.add(key)


STEPS: Final = (0.0, 0.25, 0.5)
"""Targets to try: shares of the way from the target back to the present size."""

READ: Final = 0.1
"""The price of a cached token relative to a new one if no price is known: as with Anthropic, and
with OpenAI's models since GPT-5."""


def choose_target(
    target: int, now: int, kept: int, past: Aftermath | None, prices: Sequence[Price] = ()
) -> int:
    """Return the depth of the next compaction: `target` tokens, or more if that pays.

    `now` is the size of the prompt, `kept` the tokens that stay in the provider's cache. The cost
    per answer is computed for each target: carrying the prompt (the mean of target and `now`, read
    from the cache), writing the cache once until the next compaction, and requesting dropped
    content again. The last part is assumed to fall in proportion to the dropped tokens. If nothing
    was requested again, deeper is always cheaper, and the target stays. It also stays if the last
    compaction did not last.
    """
    if past is None or not past.faults or past.answers <= SOON or now <= target:
        return target
    rates = find_cache_rates(now, prices)
    read, write = rates if rates is not None and rates[1] > 0 else (READ, 1.0)
    growth = (now - target) / past.answers
    again = (past.fault_tokens * write + past.faults * now * read) / past.answers

    def cost(size: float) -> float:
        left_out = now - size
        carried = read * (now + size) / 2
        rewritten = write * max(size - kept, 0.0) * growth / left_out
        return carried + rewritten + again * left_out / (now - target)

    return int(min((target + step * (now - target) for step in STEPS), key=cost))
