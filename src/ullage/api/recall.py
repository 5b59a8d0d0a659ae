"""What a placeholder stands for, read back by its reference: for programs and for agents.

An agent is given `recall_tool(...)` among its tools, and its calls go to `answer_recall(...)`.
The texts are the store's; this knows neither guards nor how placeholders are written.
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
    """What reads left-out texts back."""

    def read(self, reference: str, /) -> str | None:
        """Return the text of a reference, or None for an unknown one."""
        ...


@runtime_checkable
class HoldsOriginals(Protocol):
    """What has left-out texts: a store, or a session."""

    @property
    def originals(self) -> ReadsOriginals:
        """The texts, by their references."""
        ...


class Closing(Protocol):
    """What is opened and closed."""

    def close(self) -> None:
        """Let go of what it holds."""
        ...


Opened = TypeVar("Opened", bound=Closing)


def recall(
    reference: str,
    *,
    store: HoldsOriginals | EventLog | str,
    offset: int = 0,
    limit: int | None = None,
) -> str:
    """Return the text that a placeholder stands for, whole or `limit` characters from `offset`.

    `store` is an open store, a log of sessions, a session, or the URL of a store or log that
    exists. Raises StoreError for a reference that is not there, naming it and where it was looked
    for, and ConfigurationError for a senseless offset or limit.
    """
    return page(reference, store=store, offset=offset, limit=limit).text


def page(
    reference: str,
    *,
    store: HoldsOriginals | EventLog | str,
    offset: int = 0,
    limit: int | None = None,
) -> Page:
    """Do as `recall`, and tell where the page stands in the text."""
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
    """Return the text of a reference in a store or in any session of a log, None without it."""
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
    """Return the text that a session of a log has, the newest one first."""
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
            continue  # one that cannot be read hides no other
    if lost is not None:  # it may be the text that is asked for
        raise lost
    return None


def recall_tool(dialect: str = dialects.DEFAULT) -> dict[str, Any]:
    """Return the definition of a tool by which an agent reads originals back.

    `dialect` is the name of one; raises ConfigurationError for an unknown one.
    """
    form = dialects.find(dialects.parse_name(dialect)).make_form()
    return deepcopy(form.tool(SPEC))  # the caller may change it


def follow_references(references: Iterable[str], originals: ReadsOriginals) -> frozenset[str]:
    """Return references, and those in their texts: what was left out may name older text."""
    seen, waiting = set[str](), list(references)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += find_references(originals.read(name) or "")
    return frozenset(seen)


def list_left_out(messages: Iterable[Any]) -> frozenset[str]:
    """Return the references of the texts that were left out of these messages, as they were sent.

    They stand in placeholders and in the block of a compaction (`view.messages` has those).
    """
    return find_references(json.dumps(list(messages), default=str))


def answer_recall(
    arguments: Any,
    store: HoldsOriginals | EventLog | str,
    *,
    messages: Iterable[Any] | None = None,
) -> str:
    """Return the result of a call of the tool: a page, or a sentence that says what is wrong.

    `arguments` is the JSON text of OpenAI's calls or the mapping of Anthropic's. `messages` are
    those that were sent to the model: of an open store, only what they have placeholders for is
    read then, and what stands in its place. Give them where many share the store. Nothing that a
    model may write raises an exception, nor does a store that fails.
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
    """Lend what a URL opens, where it is there, and close it again."""
    opened = opens(url, create=False)
    try:
        yield opened
    finally:
        opened.close()
