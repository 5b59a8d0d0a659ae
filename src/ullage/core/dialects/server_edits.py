"""Edits that a request asks its provider to make itself, once the prompt is large enough.

The folders next to this file read them from the fields of a request. This module knows no window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ullage.core.messages.fields import mapping


@dataclass(frozen=True, slots=True)
class ServerEdits:
    """An edit by the provider: its name, and the prompt tokens from which it is made.

    `at` is 0 if it is made at once, None if the provider chooses.
    """

    name: str
    at: int | None = None

    def describe(self) -> str:
        """Describe the provider's edit for people."""
        if self.at is None:
            return f"the provider makes room by itself ({self.name})"
        at = "now" if self.at == 0 else f"at {self.at:,} tokens"
        return f"the provider makes room by itself {at} ({self.name})"


@dataclass(frozen=True, slots=True)
class NativeCompaction:
    """The request for a compaction by the provider, without an answer.

    `path` is appended to the address of a call. `fields` are sent in addition to the conversation,
    `headers` in addition to the endpoint's own. `read` returns the message that replaces the
    compacted ones, or None if the response has none.
    """

    read: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    path: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()


def list_mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a list that are objects; they may be SDK objects."""
    listed = value if isinstance(value, list | tuple) else ()
    return (entry for item in listed if (entry := mapping(item)) is not None)


def read_tokens(value: Any, default: int | None) -> int | None:
    """Return a positive number of tokens, or the default for anything else."""
    return value if type(value) is int and value > 0 else default
