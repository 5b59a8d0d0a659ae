"""Full-text search in left-out texts of conversations: for programs and for agents.

Give an agent `search_tool(...)` as a tool, and answer its calls with `answer_search(...)`. If many
conversations share a store, an agent finds only the texts that its own messages refer to.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from ullage import config
from ullage.api.recall import HoldsOriginals, follow_references, lend, list_left_out
from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError, UllageError
from ullage.core.search.index import MemoryIndex
from ullage.core.search.ranking import HITS, Hit, SearchArea
from ullage.core.session import searching
from ullage.core.session.searching import SPEC, read_query, write_hits
from ullage.embeddings import prepare_similar
from ullage.storage import has_log, open_log, open_store
from ullage.storage.protocol import SearchesOriginals
from ullage.storage.searching import search_log

if TYPE_CHECKING:
    from ullage.storage.log import EventLog


def search(
    query: str,
    *,
    store: HoldsOriginals | EventLog | str,
    hits: int = HITS,
    references: Iterable[str] | None = None,
    session: str | None = None,
) -> list[Hit]:
    """Return the passages of left-out texts that fit a query best, the best one first.

    `query` is words in any language, `hits` a number of passages from 1 to 100. `store` is an open
    store, a log of sessions, or the URL of an existing store or log. A log is searched in full: all
    of its sessions, or one `session`. With `references` (see `list_left_out`), only these texts of
    a store are searched. `hit.reference` is the argument for `recall`. The order is by BM25;
    passages that contain more of the query's words rank higher. If the setting `embeddings` is on,
    or the store was opened with it, passages with a similar meaning are found too.

    Raises ConfigurationError for a query without words, an invalid number, or a store that cannot
    be searched, and StoreError if the store cannot be read or has no such session.
    """
    if isinstance(store, str):
        return _search_url(query, store, hits, references, session)
    if isinstance(store, HoldsOriginals):
        return _search_store(query, store, hits, references)
    upto = None if session is None else {session: store.head(session).seq}
    return search_log(store, query, hits, SearchArea(sessions=upto))


def _search_url(
    query: str, url: str, hits: int, references: Iterable[str] | None, session: str | None
) -> list[Hit]:
    """Search the store at a URL: its originals, and its sessions if it has any."""
    found: list[Hit] = []
    embeddings = config.load().settings.embeddings
    if session is None:
        with lend(partial(open_store, embeddings=embeddings), url) as opened:
            found += _search_store(query, opened, hits, references)
    if references is None and has_log(url):
        with lend(partial(open_log, embeddings=embeddings), url) as log:
            found += search(query, store=log, hits=hits, session=session)
    elif session is not None:
        raise ConfigurationError(f"{url} has no sessions: leave out session={session!r}")
    return sorted(found, key=lambda hit: -hit.score)[:hits]


def _search_store(
    query: str, store: HoldsOriginals, hits: int, references: Iterable[str] | None
) -> list[Hit]:
    originals = store.originals
    if not isinstance(originals, SearchesOriginals):
        raise ConfigurationError(
            f"{type(store).__name__} cannot be searched: its originals have no method `search`"
        )
    if references is None:
        return originals.search(query, hits)
    named = follow_references(references, store.originals)
    return originals.search(query, hits, SearchArea(references=named))


def make_index() -> MemoryIndex:
    """Return an empty index in memory; the setting `embeddings` lets it find similar texts too."""
    index = MemoryIndex()
    if config.load().settings.embeddings:
        index.similar = prepare_similar()
    return index


def search_tool(dialect: str = dialects.DEFAULT) -> dict[str, Any]:
    """Return the definition of the tool with which an agent searches left-out texts.

    `dialect` is a dialect's name; raises ConfigurationError for an unknown one.
    """
    form = dialects.find(dialects.parse_name(dialect)).make_form()
    return deepcopy(form.tool(SPEC))  # the caller may change it


def answer_search(
    arguments: Any,
    store: HoldsOriginals | EventLog | str,
    *,
    messages: Iterable[Any] | None = None,
    session: str | None = None,
) -> str:
    """Return the result of a call of the tool: passages, or a sentence that explains the error.

    `arguments` is the JSON text of an OpenAI call or the mapping of an Anthropic call. `messages`
    are those that were sent to the model. If given, only texts that they refer to are found.
    Without `messages` and `session` the whole store is searched, so give one of them if many
    conversations share it. Bad arguments from a model and a failing store never raise an exception.
    """
    try:
        query = read_query(arguments)
        named = None if messages is None else list_left_out(messages)
        found = search(query, store=store, hits=searching.HITS, references=named, session=session)
    except UllageError as error:
        return f"error: {error}"
    return write_hits(found)
