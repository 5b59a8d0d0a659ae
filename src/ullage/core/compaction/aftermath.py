"""What came of a compaction, told when the next one is due; and the target that pays for it.

How long it lasted, which calls were made again behind it, what was asked for again that it had
left out. From that, and from prices, follows how deep the next one goes. It reads histories and
knows no guard, no store and no clock.
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
"""Answers behind a compaction in which a call that is made again counts as its consequence."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What came of a compaction until the next one.

    `answers` were given since. Of the `calls` in the first 20 of them `repeated` were made before,
    word for word; of the `usual_calls` in the 20 answers in front of it, `usual_repeated` were.
    `faults` is what was asked for again that the compaction had left out, `fault_tokens` what
    stands in the history for it.
    """

    answers: int
    calls: int
    repeated: int
    usual_calls: int
    usual_repeated: int
    faults: int
    fault_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        return asdict(self)


def review(
    messages: Sequence[Message], place: int, faulted: Sequence[int], faults: int
) -> Aftermath:
    """Return what came of a compaction that was planned when a history had `place` messages.

    `faulted` are the sizes of the messages that bring again what it left out, in tokens.
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
    """Yield calls: by which answer each is made, and whether it was made before."""
    seen: set[str] = set()
    answer = -1
    for message in messages:
        answer += message.role == "assistant"
        for key in list_keys(message):
            if key:
                yield answer, key in seen
                seen.add(key)


STEPS: Final = (0.0, 0.25, 0.5)
"""How much of the way back to the present size targets are tried that are less deep."""

READ: Final = 0.1
"""What a cached token costs beside a new one where no price says it: as with Anthropic, and with
OpenAI's models since GPT-5."""


def choose_target(
    target: int, now: int, kept: int, past: Aftermath | None, prices: Sequence[Price] = ()
) -> int:
    """Return how deep the next compaction goes: to `target` tokens, or to more where that pays.

    `now` is the size of the prompt, `kept` the tokens that stay in the provider's cache. For each
    target the cost of an answer is reckoned: carrying the prompt (half of the way up from the
    target to `now`, read from the cache), writing the cache anew once until the next compaction,
    and what was asked for again. The last falls in proportion to what is left out: that is assumed.
    Where nothing was asked for again, deeper is always cheaper, and the target stays. So it does
    where the last one did not last.
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
