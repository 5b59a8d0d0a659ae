"""The tools: each calls one function of the library, and returns its result as plain values.

It knows no protocol. The caller passes in everything that a host may see (sessions, stores).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from ullage.api.compact import CompactOptions, compact
from ullage.api.context import of_session, strip_window_mark
from ullage.api.functions import count, count_text
from ullage.api.recall import find_text, page
from ullage.api.search import make_index, search
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.search.ranking import HITS, find_hits
from ullage.core.session.recall import cut_page
from ullage.core.tokens.counting import Count
from ullage.mcp_tools.answers import (
    ChangedMessage,
    CompactResult,
    CountResult,
    PassageResult,
    RecallResult,
    SearchResult,
    WindowResult,
)
from ullage.mcp_tools.conversation import NamedConversation, list_texts, read_conversation

RATIO: Final = 0.6
"""The share of the window to reach if no target is given, as in `ullage compact`."""

BEGINS: Final = 80
"""Characters shown of a message."""

Model = Annotated[
    str | None, Field(description="The model whose vocabulary, window and prices count")
]
Url = Annotated[
    str | None, Field(description="The model's server, such as http://127.0.0.1:8080/v1")
]
Window = Annotated[int | None, Field(description="The window in tokens, where you know better")]
Store = Annotated[
    NamedConversation | None,
    Field(description="Look here instead of the stores of this machine"),
]


@dataclass(frozen=True)
class HostTools:
    """The tools of one server.

    `sources` are the programs whose sessions may be read. `find_stores` returns the URLs of the
    stores and logs to search. `find_window` describes a window by model, base URL and provider.
    """

    sources: Sequence[str]
    find_stores: Callable[[], Sequence[str]]
    find_window: Callable[[str | None, str | None, str | None], Mapping[str, Any]]

    def window(
        self,
        model: Annotated[str | None, Field(description="The model's id")] = None,
        base_url: Url = None,
        provider: Annotated[
            str | None, Field(description="The provider that serves it, if no URL shows it")
        ] = None,
    ) -> WindowResult:
        """Tell how large a model's context window is, and the source of that number."""
        return WindowResult(**self.find_window(model, base_url, provider))

    def count(
        self,
        conversation: NamedConversation | None = None,
        text: Annotated[str | None, Field(description="A plain text, in its place")] = None,
        model: Model = None,
        base_url: Url = None,
    ) -> CountResult:
        """Count the tokens of a conversation, or of a text."""
        if (text is None) == (conversation is None):
            raise ConfigurationError("give one thing to count: a conversation, or a text")
        if conversation is None:
            if base_url is not None:
                raise ConfigurationError("a text is counted offline: leave base_url out")
            found = count_text(text or "", model=strip_window_mark(model))
            if isinstance(found, int):
                found = Count(found, found, found, "exact")
            return _describe_count(found, "text")
        session = read_conversation(conversation, self.sources)
        counted = count(
            session.current,
            model=strip_window_mark(model or session.model),
            tools=list(session.tools),
            system=session.system,
            dialect=session.dialect,
            base_url=base_url,
        )
        return _describe_count(counted, "messages")

    def context(
        self,
        conversation: NamedConversation,
        model: Model = None,
        window: Window = None,
        top: Annotated[int, Field(description="Largest items to list", ge=0)] = 5,
    ) -> dict[str, Any]:
        """Tell what fills the context window: parts, tools, the largest items, the free tokens."""
        session = read_conversation(conversation, self.sources)
        return of_session(session, model=model, window=window, top=top).to_dict()

    def search(
        self,
        query: Annotated[str, Field(description="Words to look for, in any language")],
        conversation: Store = None,
        session: Annotated[
            str | None, Field(description="Look into one session of ullage's own only")
        ] = None,
        hits: Annotated[int, Field(description="At most so many passages", ge=1, le=100)] = HITS,
    ) -> SearchResult:
        """Find messages and left-out texts by words; each hit has a reference for `recall`."""
        if conversation is not None:
            read = read_conversation(conversation, self.sources)
            index, texts = make_index(), [*list_texts(read)]
            index.take(read.id or "", texts, len(texts))
            found = find_hits(index, query, hits)
        else:
            stores = self.find_stores()
            found = [
                hit
                for url in stores
                for hit in search(query, store=url, hits=hits, session=session)
            ]
        best = sorted(found, key=lambda hit: -hit.score)[:hits]
        return SearchResult(
            [
                PassageResult(hit.reference, hit.offset, round(hit.score, 3), hit.text, hit.session)
                for hit in best
            ]
        )

    def recall(
        self,
        reference: Annotated[str, Field(description="The reference: u: and 16 digits")],
        conversation: Store = None,
        offset: Annotated[int, Field(description="Characters to skip", ge=0)] = 0,
        limit: Annotated[int | None, Field(description="Characters to return", ge=1)] = None,
    ) -> RecallResult:
        """Read the text of a placeholder's or a search hit's reference."""
        if conversation is not None:
            texts = list_texts(read_conversation(conversation, self.sources))
            named = next((one.text for one in texts if one.reference == reference), None)
            if named is None:
                raise StoreError(f"the conversation holds no text for {reference!r}: search it")
            found = cut_page(named, offset, limit)
        else:
            stores = [*self.find_stores()]
            holding = (url for url in stores if find_text(reference, url) is not None)
            url = next(holding, stores[-1])
            found = page(reference, store=url, offset=offset, limit=limit)
        return RecallResult(found.text, found.offset, found.total, found.after)

    def compact(
        self,
        conversation: NamedConversation,
        model: Model = None,
        window: Window = None,
        target_tokens: Annotated[int | None, Field(description="The size to reach", ge=1)] = None,
        policy: Annotated[str | None, Field(description="A preset, such as ladder")] = None,
    ) -> CompactResult:
        """Tell what a compaction of a conversation would do. It changes nothing."""
        session = read_conversation(conversation, self.sources)
        options: CompactOptions = {
            "model": strip_window_mark(model or session.model),
            "window": session.window_tokens if window is None else window,
            "tools": list(session.tools) or None,
            "system": session.system,
            "dialect": session.dialect,
            "policy": policy,
            "dry_run": True,
        }
        if target_tokens is None:
            options["target_ratio"] = RATIO
        else:
            options["target_tokens"] = target_tokens
        made = compact(session.current, **options)
        changes = [
            ChangedMessage(
                row.position, row.message.role, row.before, row.after, row.strategy,
                " ".join((row.message.text or "").split())[:BEGINS],
            )
            for row in made.outcome.changes()
        ]  # fmt: skip
        return CompactResult(
            before=_describe_count(made.before, "messages"),
            after=_describe_count(made.after, "messages"),
            messages_before=len(made.original),
            messages_after=len(made.outcome.edited.origin),
            changed=made.changed,
            reached=made.reached,
            reason=made.reason,
            strategy=made.strategy,
            policy=made.policy,
            changes=changes,
            inserts=[insert.text for insert in made.outcome.script.inserts],
        )


def _describe_count(found: Count, form: str) -> CountResult:
    return CountResult(found.tokens, found.low, found.high, found.basis, form)
