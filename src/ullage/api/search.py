"""What was left out of conversations, found by words: for programs and for agents.

An agent is given `search_tool(...)` among its tools, and its calls go to `answer_search(...)`. Of a
store that many conversations share, it finds only what its own messages have placeholders for.
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
    store, a log of sessions, or the URL of either that exists; in a log everything that was said
    is found, in its sessions or in one `session`. With `references` (see `list_left_out`) only
    these texts of a store are looked into. `hit.reference` is what `recall` takes. The order is
    BM25's, with more for passages that hold more of the query; where the setting `embeddings` is
    on, or the store was opened with it, passages that mean the same stand among them.

    Raises ConfigurationError for a query without words, a senseless number, or a store that cannot
    be searched, and StoreError where it cannot be read or has no such session.
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
    """Search what a URL names: its originals, and its sessions where it holds any."""
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
    """Return an empty index in memory, which finds what is similar where the settings say so."""
    index = MemoryIndex()
    if config.load().settings.embeddings:
        index.similar = prepare_similar()
    return index


def search_tool(dialect: str = dialects.DEFAULT) -> dict[str, Any]:
    """Return the definition of a tool by which an agent searches what was left out.

    `dialect` is the name of one; raises ConfigurationError for an unknown one.
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
    """Return the result of a call of the tool: passages, or a sentence that says what is wrong.

    `arguments` is the JSON text of OpenAI's calls or the mapping of Anthropic's. `messages` are
    those that were sent to the model: only what they have placeholders for is found then. Without
    them, and without a `session`, everything in the store is: give one where many share it.
    Nothing that a model may write raises an exception, nor does a store that fails.
    """
    try:
        query = read_query(arguments)
        named = None if messages is None else list_left_out(messages)
        found = search(query, store=store, hits=searching.HITS, references=named, session=session)
    except UllageError as error:
        return f"error: {error}"
    return write_hits(found)
