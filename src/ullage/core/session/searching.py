"""The tool that searches the left-out texts of a conversation: its definition and its results.

Our own agents and other agents get the same tool. This module knows no store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.core.search.names import NOTHING, SEARCH
from ullage.core.search.ranking import Hit
from ullage.core.session.recall import read_mapping
from ullage.core.session.tools import Spec

HITS: Final = 6
"""Passages that an agent gets: about 1,500 tokens."""

FOUND: Final = "Left out of this conversation:"
"""The first line of the tool's result; such a result is not searched again."""

SPEC: Final = Spec(
    name=SEARCH,
    description="Find words in text that was left out of this conversation.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
        "additionalProperties": False,
    },
    reads_only=True,
    idempotent=True,
)


def write_hits(hits: Sequence[Hit]) -> str:
    """Return the hits for an agent: each passage with its reference and offset."""
    if not hits:
        return NOTHING
    passages = (f"[{hit.reference} offset={hit.offset}]\n{hit.text.strip()}" for hit in hits)
    return "\n\n".join((FOUND, *passages))


def read_query(arguments: Any) -> str:
    """Return the query of a call.

    `arguments` is JSON text or a mapping. Raises ConfigurationError with the fault in the
    arguments.
    """
    query = read_mapping(arguments, SPEC, '{"query": "..."}').get("query")
    if not isinstance(query, str) or not query.strip():
        raise ConfigurationError("query is missing: give the words to look for")
    return query
