"""What a request asks its provider to leave out by itself, once the prompt is large enough.

The folders beside this file read it from the fields of a request. It knows no window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ullage.core.messages.fields import mapping


@dataclass(frozen=True, slots=True)
class ServerEdits:
    """An edit of the provider's own: its name, and the prompt tokens from which it is made.

    `at` is 0 where it is made at once, None where the provider chooses.
    """

    name: str
    at: int | None = None

    def describe(self) -> str:
        """Return what the provider does, in words for people."""
        if self.at is None:
            return f"the provider makes room by itself ({self.name})"
        at = "now" if self.at == 0 else f"at {self.at:,} tokens"
        return f"the provider makes room by itself {at} ({self.name})"


@dataclass(frozen=True, slots=True)
class NativeCompaction:
    """How a provider is asked to compact, and nothing else.

    `path` goes behind the address of a call. `fields` are sent besides the conversation, `headers`
    besides the endpoint's own. `read` returns the message that stands for what was compacted, None
    where the answer has none.
    """

    read: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    path: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()


def list_mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a list that are objects; an SDK may hand out objects of its own."""
    listed = value if isinstance(value, list | tuple) else ()
    return (entry for item in listed if (entry := mapping(item)) is not None)


def read_tokens(value: Any, default: int | None) -> int | None:
    """Return a number of tokens, or the default where there is none."""
    return value if type(value) is int and value > 0 else default
