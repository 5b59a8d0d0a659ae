"""The state of a provider's cache for a conversation, and the detection of a lost cache.

A cache holds the beginning of the last request, byte for byte, for one model. It is known only from
reports: a report of a cache read or write shows how much the next request may read. This module
knows no provider.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.compaction.checkpoint import chain
from ullage.core.guard.events import CacheBust

if TYPE_CHECKING:
    from ullage.core.dialects.usage import Usage
    from ullage.core.guard.events import BustKind
    from ullage.core.guard.request import Prepared, Setup

LEAST: Final = 1_024
"""Tokens below which providers cache nothing (OpenAI; 1,024 to 4,096 at Anthropic, by model)."""

READ: Final = 0.5
"""Share of the cached tokens below which a read counts as a lost cache: providers cache in steps of
up to 1,024 tokens, and the last answer may be in a message of its own.
"""

LIFE_S: Final = 300.0
"""Seconds after which a cache may have expired: Anthropic's default is five minutes, OpenAI's five
to ten.
"""


class Warm(NamedTuple):
    """The cache after an answer: its tokens, and the first `covered` messages that it holds.

    `sent` is the chain hash of these messages, `beside` a hash of system text and tools. `under`
    names the checkpoint of the request, `at` is the time.
    """

    tokens: int
    covered: int
    sent: str
    beside: str
    under: str
    at: float


def note_warmth(setup: Setup, sent: Prepared, usage: Usage) -> Warm | None:
    """Return the state of the cache after this answer, or None if the usage shows no cache."""
    if not (usage.cache_read or usage.cache_write) or not len(sent.sent):
        return None
    links = chain(sent.sent)
    place = (len(links), links[-1], _hash_beside(sent), _name_checkpoint(sent))
    return Warm(usage.prompt_tokens, *place, setup.now)


def find_bust(setup: Setup, sent: Prepared, usage: Usage) -> tuple[CacheBust, ...]:
    """Return the event of a lost cache; empty if it was read, or if a compaction changed it."""
    warm = sent.conversation.warm
    if warm is None or warm.tokens < LEAST or warm.under != _name_checkpoint(sent):
        return ()
    if usage.cache_read >= READ * warm.tokens:
        return ()
    return (CacheBust(_find_kind(setup, sent, warm), warm.tokens - usage.cache_read),)


def _name_checkpoint(sent: Prepared) -> str:
    made = sent.checkpoint or sent.replayed
    return "" if made is None else f"{made.prefix}/{made.generation}"


def _find_kind(setup: Setup, sent: Prepared, warm: Warm) -> BustKind:
    links = chain(sent.sent)
    whole = warm.covered <= len(links) and links[warm.covered - 1] == warm.sent
    if not whole or _hash_beside(sent) != warm.beside:
        return "edited"
    return "expired" if setup.now - warm.at >= LIFE_S else "unknown"


def _hash_beside(sent: Prepared) -> str:
    """Return a hash of what precedes the messages: system text, and the size of the tools."""
    found = blake2b(str(sent.measured.fixed.best).encode(), digest_size=8)
    for message in sent.sent.messages:
        if message.is_system:
            found.update(message.digest)
    return found.hexdigest()
