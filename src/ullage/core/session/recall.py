"""The tool that reads back the text behind a placeholder: its definition and its pages.

Our own agents and other agents get the same tool. This module knows no store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.core.search.names import RECALL
from ullage.core.session.tools import Spec

PAGE: Final = 20_000
"""Characters that an agent gets at once if it names no limit: about 5,000 tokens."""

LARGEST: Final = 100_000
"""Most characters that an agent may ask for at once."""

SPEC: Final = Spec(
    name=RECALL,
    description=(
        "Read text that was left out of this conversation, by its reference (u:0123456789abcdef). "
        "Long texts come in pages."
    ),
    parameters={
        "type": "object",
        "properties": {
            "reference": {"type": "string"},
            "offset": {"type": "integer", "minimum": 0, "description": "characters to skip"},
            "limit": {"type": "integer", "minimum": 1, "maximum": LARGEST},
        },
        "required": ["reference"],
        "additionalProperties": False,
    },
    reads_only=True,
    idempotent=True,
)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a text: `offset` and `total` are in characters; `after` is None at the end."""

    text: str
    offset: int
    total: int

    @property
    def after(self) -> int | None:
        """The offset of the next page."""
        end = self.offset + len(self.text)
        return end if end < self.total else None

    def write(self) -> str:
        """Return the page for an agent, with its position unless it is the whole text."""
        if self.offset == 0 and self.after is None:
            return self.text
        end = self.offset + len(self.text)
        more = "the end" if self.after is None else f"go on with offset={self.after}"
        return f"{self.text}\n[characters {self.offset} to {end} of {self.total}; {more}]"


def cut_page(text: str, offset: int = 0, limit: int | None = None) -> Page:
    """Return a page of a text, `limit` characters from `offset` on.

    Raises ConfigurationError for an offset after the end of the text.
    """
    if offset > len(text):
        raise ConfigurationError(
            f"offset {offset:,} is past the end: the text has {len(text):,} characters"
        )
    end = len(text) if limit is None else offset + limit
    return Page(text[offset:end], offset, len(text))


def clean_reference(text: str) -> str:
    """Return a reference without surrounding marks, which models copy with it."""
    return text.strip(" \t\r\n\"'`[]()<>.,;")


def read_arguments(arguments: Any) -> dict[str, Any]:
    """Return a call's `reference`, `offset` and `limit`.

    `arguments` is JSON text or a mapping. Raises ConfigurationError with the fault in the
    arguments.
    """
    given = read_mapping(arguments, SPEC, '{"reference": "u:..."}')
    reference = given.get("reference")
    if not isinstance(reference, str) or not reference.strip():
        raise ConfigurationError('reference is missing: give the one in the placeholder, "u:..."')
    limit = given.get("limit")
    limit = PAGE if limit is None else limit
    if type(limit) is int:
        limit = min(limit, LARGEST)
    offset = given.get("offset") or 0
    return {"reference": clean_reference(reference), "offset": offset, "limit": limit}


def read_mapping(arguments: Any, spec: Spec, sample: str) -> Mapping[str, Any]:
    """Return the arguments of a call as a mapping of names that the tool knows.

    Raises ConfigurationError with the fault in the arguments.
    """
    given = arguments
    if isinstance(arguments, str | bytes):
        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"the arguments are no JSON ({error})") from error
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"the arguments are an object, such as {sample}")
    known = spec.parameters["properties"]
    for name in given:
        if name not in known:
            raise ConfigurationError(f"there is no argument {name!r}: there are {', '.join(known)}")
    return given
