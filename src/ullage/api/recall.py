"""What a placeholder stands for, read back by its reference: for programs and for agents.

An agent is given `recall_tool(...)` among its tools, and its calls go to `answer_recall(...)`.
The texts are the store's; this knows neither guards nor how placeholders are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError, StoreError, UllageError
from ullage.storage import open_store

if TYPE_CHECKING:
    from ullage.storage import Store

TOOL: Final = "ullage_recall"
"""The name of the tool that an agent calls."""

PAGE: Final = 20_000
"""Characters that an agent is given at once where it names no limit: about 5,000 tokens."""

LARGEST: Final = 100_000
"""Characters that an agent may ask for at once."""

DESCRIPTION: Final = (
    "Read back text that was left out of this conversation to save room. A placeholder in the "
    "conversation names its reference, such as u:0123456789abcdef. A long text comes in pages: "
    "go on with the offset that the answer names."
)

PARAMETERS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "reference": {"type": "string", "description": "the reference in the placeholder"},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "how many characters to skip (0 where left out)",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": LARGEST,
                "description": f"how many characters to return ({PAGE} where left out)",
            },
        },
        "required": ["reference"],
        "additionalProperties": False,
    }
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


def recall(reference: str, *, store: Store | str, offset: int = 0, limit: int | None = None) -> str:
    """Return the text that a placeholder stands for, whole or `limit` characters from `offset`.

    `store` is an open store or the URL of one that exists. Raises StoreError for a reference that
    is not there, naming it and the store, and ConfigurationError for a senseless offset or limit.
    """
    return page(reference, store=store, offset=offset, limit=limit).text


def page(reference: str, *, store: Store | str, offset: int = 0, limit: int | None = None) -> Page:
    """Do as `recall`, and tell where the page stands in the text."""
    if type(offset) is not int or offset < 0:
        raise ConfigurationError(f"offset is a number of characters from 0 on, not {offset!r}")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ConfigurationError(f"limit is a number of characters above 0, not {limit!r}")
    with _opened(store) as held:
        text = held.originals.read(reference)
        if text is None:
            raise StoreError(
                f"{held.url} holds no text for {reference!r}: check the reference (u: and 16 "
                "digits) and the store; texts are forgotten some days after their last use"
            )
    if offset > len(text):
        raise ConfigurationError(f"offset {offset:,} is behind the {len(text):,} characters")
    end = len(text) if limit is None else offset + limit
    return Page(text[offset:end], offset, len(text))


def recall_tool(dialect: str = dialects.DEFAULT) -> dict[str, Any]:
    """Return the definition of a tool by which an agent reads originals back.

    `dialect` is the name of one; raises ConfigurationError for one that there is not.
    """
    form = dialects.find(dialects.named(dialect)).make_form()
    return form.tool(_Tool())


@dataclass(frozen=True, slots=True)
class _Tool:
    """The tool as it is offered."""

    name: str = TOOL
    description: str = DESCRIPTION

    @property
    def parameters(self) -> dict[str, Any]:
        """A copy that the caller may change."""
        return cast("dict[str, Any]", json.loads(json.dumps(dict(PARAMETERS))))


def answer_recall(arguments: Any, store: Store | str) -> str:
    """Return the result of a call of the tool: a page, or a sentence that says what is wrong.

    `arguments` is the JSON text of OpenAI's calls or the mapping of Anthropic's. Nothing that a
    model may write raises an exception, nor does a store that fails.
    """
    try:
        found = page(store=store, **_asked(arguments))
    except UllageError as error:
        return f"error: {error}"
    if found.offset == 0 and found.after is None:
        return found.text
    end = found.offset + len(found.text)
    more = "the end" if found.after is None else f"go on with offset={found.after}"
    return f"{found.text}\n[characters {found.offset} to {end} of {found.total}; {more}]"


def _asked(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments; raises ConfigurationError with what is wrong in them."""
    given = arguments
    if isinstance(arguments, str | bytes):
        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"the arguments are no JSON ({error})") from error
    if not isinstance(given, Mapping):
        raise ConfigurationError('the arguments are an object, such as {"reference": "u:..."}')
    known = PARAMETERS["properties"]
    for name in given:
        if name not in known:
            raise ConfigurationError(f"there is no argument {name!r}: there are {', '.join(known)}")
    reference = given.get("reference")
    if not isinstance(reference, str) or not reference.strip():
        raise ConfigurationError('reference is missing: give the one in the placeholder, "u:..."')
    limit = given.get("limit")
    limit = PAGE if limit is None else limit
    if type(limit) is int:
        limit = min(limit, LARGEST)
    # Models copy a reference with the marks around it.
    return {
        "reference": reference.strip(" \t\r\n\"'`[]()<>.,;"),
        "offset": given.get("offset") or 0,
        "limit": limit,
    }


@contextmanager
def _opened(store: Store | str) -> Iterator[Store]:
    """Lend a store: the caller's own, or one that is opened for this and closed again."""
    if not isinstance(store, str):
        yield store
        return
    opened = open_store(store, create=False)
    try:
        yield opened
    finally:
        opened.close()
