"""Left-out texts, read back by their reference: for programs and for agents.

Give an agent `recall_tool(...)` as a tool, and answer its calls with `answer_recall(...)`. The
texts come from a store. This module knows neither guards nor how placeholders are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from ullage.core.compaction.edits import find_references
from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError, StoreAway, StoreError, UllageError
from ullage.core.session.originals import find_original
from ullage.core.session.recall import SPEC, Page, cut_page, read_arguments
from ullage.storage import has_log, hide_password, open_log, open_store
from ullage.storage.objects import LostText
from ullage.storage.pieces import read_pieces

if TYPE_CHECKING:
    from ullage.storage.log import EventLog


class ReadsOriginals(Protocol):
    """A reader of left-out texts."""

    def read(self, reference: str, /) -> str | None:
        """Return the text of a reference, or None if the reference is unknown."""
        ...


@runtime_checkable
class HoldsOriginals(Protocol):
    """A holder of left-out texts: a store or a session."""

    @property
    def originals(self) -> ReadsOriginals:
        """The texts, by their references."""
        ...


class Closing(Protocol):
    """An object that can be closed."""

    def close(self) -> None:
        """Release its resources."""
        ...


Opened = TypeVar("Opened", bound=Closing)


def recall(
    reference: str,
    *,
    store: HoldsOriginals | EventLog | str,
    offset: int = 0,
    limit: int | None = None,
) -> str:
    """Return the text that a placeholder replaces, whole or `limit` characters from `offset`.

    `store` is an open store, a log of sessions, a session, or the URL of an existing store or log.
    Raises StoreError for an unknown reference (the message names the reference and the store), and
    ConfigurationError for an invalid offset or limit.
    """
    return page(reference, store=store, offset=offset, limit=limit).text


def page(
    reference: str,
    *,
    store: HoldsOriginals | EventLog | str,
    offset: int = 0,
    limit: int | None = None,
) -> Page:
    """Do as `recall`, and also return the position of the page in the text."""
    if type(offset) is not int or offset < 0:
        raise ConfigurationError(f"offset is a number of characters from 0 on, not {offset!r}")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ConfigurationError(f"limit is a number of characters above 0, not {limit!r}")
    text = find_text(reference, store)
    if text is None:
        where = hide_password(store) if isinstance(store, str) else getattr(store, "url", store)
        raise StoreError(
            f"{where} holds no text for {reference!r}: check the reference (u: and 16 digits) and "
            "the store; texts in a store are forgotten some days after their last use"
        )
    return cut_page(text, offset, limit)


def find_text(reference: str, store: HoldsOriginals | EventLog | str) -> str | None:
    """Return the text of a reference in a store or in any session of a log, or None."""
    if not isinstance(store, str):
        return _find_kept(reference, store)
    with lend(open_store, store) as opened:
        found = _find_kept(reference, opened)
    if found is None and has_log(store):
        with lend(open_log, store) as log:
            found = _find_in_log(reference, log)
    return found


def _find_kept(reference: str, store: HoldsOriginals | EventLog) -> str | None:
    if isinstance(store, HoldsOriginals):
        return store.originals.read(reference)
    return _find_in_log(reference, store)


def _find_in_log(reference: str, log: EventLog) -> str | None:
    """Return the text from the newest session of a log that has it."""
    lost: StoreError | None = None
    for head in reversed(log.sessions()):
        try:
            for piece in read_pieces(log, head.session):
                found = find_original(piece, reference)
                if found is not None:
                    return found
        except (LostText, StoreAway) as error:
            lost = lost or error
        except StoreError:
            continue  # an unreadable session must not hide the others
    if lost is not None:  # the lost text may be the requested one
        raise lost
    return None


def recall_tool(dialect: str = dialects.DEFAULT) -> dict[str, Any]:
    """Return the definition of the tool with which an agent reads left-out texts.

    `dialect` is a dialect's name; raises ConfigurationError for an unknown one.
    """
    form = dialects.find(dialects.parse_name(dialect)).make_form()
    return deepcopy(form.tool(SPEC))  # the caller may change it


def follow_references(references: Iterable[str], originals: ReadsOriginals) -> frozenset[str]:
    """Return the references and those in their texts: a left-out text may refer to older ones."""
    seen, waiting = set[str](), list(references)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += find_references(originals.read(name) or "")
    return frozenset(seen)


def list_left_out(messages: Iterable[Any]) -> frozenset[str]:
    """Return the references to left-out texts that these messages contain, as they were sent.

    References are in placeholders and in the block of a compaction (`view.messages` has both).
    """
    return find_references(json.dumps(list(messages), default=str))


def answer_recall(
    arguments: Any,
    store: HoldsOriginals | EventLog | str,
    *,
    messages: Iterable[Any] | None = None,
) -> str:
    """Return the result of a call of the tool: a page, or a sentence that explains the error.

    `arguments` is the JSON text of an OpenAI call or the mapping of an Anthropic call. `messages`
    are those that were sent to the model. If given with an open store, only texts that these
    messages refer to, and older texts that those texts refer to, can be read. Give them if many
    conversations share the store. Bad arguments from a model and a failing store never raise an
    exception.
    """
    try:
        wanted = read_arguments(arguments)
        if messages is not None and isinstance(store, HoldsOriginals):
            named = follow_references(list_left_out(messages), store.originals)
            if wanted["reference"] not in named:
                raise StoreError(
                    f"{wanted['reference']!r} is no reference of this conversation: take one "
                    "from a placeholder in its messages"
                )
        return page(store=store, **wanted).write()
    except UllageError as error:
        return f"error: {error}"


@contextmanager
def lend(opens: Callable[..., Opened], url: str) -> Iterator[Opened]:
    """Yield the existing store or log at a URL, and close it afterwards."""
    opened = opens(url, create=False)
    try:
        yield opened
    finally:
        opened.close()
