"""What a placeholder stands for, read back by its reference: for programs and for agents.

An agent is given `recall_tool(...)` among its tools, and its calls go to `answer_recall(...)`.
The texts are the store's; this knows neither guards nor how placeholders are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError, StoreError, UllageError
from ullage.core.session.recall import SPEC, Page, cut_page, read_arguments
from ullage.storage import open_store

if TYPE_CHECKING:
    from ullage.storage import Store


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
    with _lend_store(store) as held:
        text = held.originals.read(reference)
        if text is None:
            raise StoreError(
                f"{held.url} holds no text for {reference!r}: check the reference (u: and 16 "
                "digits) and the store; texts are forgotten some days after their last use"
            )
    return cut_page(text, offset, limit)


def recall_tool(dialect: str = dialects.DEFAULT) -> dict[str, Any]:
    """Return the definition of a tool by which an agent reads originals back.

    `dialect` is the name of one; raises ConfigurationError for an unknown one.
    """
    form = dialects.find(dialects.parse_name(dialect)).make_form()
    return deepcopy(form.tool(SPEC))  # the caller may change it


def answer_recall(arguments: Any, store: Store | str) -> str:
    """Return the result of a call of the tool: a page, or a sentence that says what is wrong.

    `arguments` is the JSON text of OpenAI's calls or the mapping of Anthropic's. Nothing that a
    model may write raises an exception, nor does a store that fails.
    """
    try:
        return page(store=store, **read_arguments(arguments)).write()
    except UllageError as error:
        return f"error: {error}"


@contextmanager
def _lend_store(store: Store | str) -> Iterator[Store]:
    """Lend a store: the caller's own, or one that is opened for this and closed again."""
    if not isinstance(store, str):
        yield store
        return
    opened = open_store(store, create=False)
    try:
        yield opened
    finally:
        opened.close()
