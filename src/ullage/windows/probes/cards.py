"""Reads model lists and their numbers; an odd value becomes None, never an exception.

It knows untrusted JSON, but not the meaning of any key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ullage.transport import HttpResponse
from ullage.windows.probes.found import HTTP_OK, Card

LARGEST: Final = 100_000_000
"""A larger number means "no limit" (2^31 - 1, 2^63 - 1, 10^30), not a window."""


def payload(answer: HttpResponse) -> Any:
    """Return the JSON of a successful response, or None for any other."""
    return answer.json() if answer.status == HTTP_OK else None


def tokens(value: Any) -> int | None:
    """Return a number of tokens: a positive integer up to `LARGEST`; else None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST:
        return value
    return None


def mappings(value: Any) -> list[Card]:
    """Return the mappings in a list; empty if the value is not a list."""
    return [c for c in value if isinstance(c, Mapping)] if isinstance(value, list) else []


def below(value: Any, key: str) -> Any:
    """Return a mapping's value under a key, or None if there is no value or no mapping."""
    return value.get(key) if isinstance(value, Mapping) else None


def cards(listing: Any) -> list[Card]:
    """Return the models of an OpenAI-compatible list."""
    return mappings(below(listing, "data"))


def pick(listed: Sequence[Card], model: str | None) -> Card | None:
    """Return the card of exactly this model, by id or alias; if None, the only card."""
    if model is None:
        return listed[0] if len(listed) == 1 else None
    by_id = next((c for c in listed if c.get("id") == model), None)
    return by_id or next((c for c in listed if model in _texts(c.get("aliases"))), None)


def at(card: Any, path: str) -> Iterator[Any]:
    """Yield the values at a dotted path; `name[]` means every entry of a list."""
    name, _, rest = path.partition(".")
    value = below(card, name.removesuffix("[]"))
    entries = mappings(value) if name.endswith("[]") else [value]
    for entry in entries:
        if rest:
            yield from at(entry, rest)
        else:
            yield entry


def _texts(value: Any) -> list[str]:
    return [t for t in value if isinstance(t, str)] if isinstance(value, list) else []
