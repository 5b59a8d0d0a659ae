"""The conversation of a tool call: the messages in the call, or a session of this machine.

Both are read as the command line reads a file, so the numbers are the same. It counts nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from ullage import importers
from ullage.core.compaction.edits import reference
from ullage.core.errors import ConfigurationError
from ullage.core.search.index import SearchSource
from ullage.runtime import Measurable, default


@dataclass(frozen=True)
class NamedConversation:
    """The messages of the call, or a program's session on this machine: exactly one of the two."""

    messages: Annotated[
        list[dict[str, Any]] | None,
        Field(description="The history, as it would be sent to OpenAI, Anthropic or Google"),
    ] = None
    system: Annotated[Any, Field(description="The system prompt, if it is not in the messages")] = (
        None
    )
    tools: Annotated[
        list[dict[str, Any]] | None, Field(description="Definitions of the tools, as sent")
    ] = None
    source: Annotated[
        Literal["claude", "codex", "opencode"] | None,
        Field(description="The program whose session is meant"),
    ] = None
    session: Annotated[
        str | None,
        Field(description="The beginning of the session's id; the newest session without it"),
    ] = None


def read_conversation(
    named: NamedConversation, sources: Collection[str]
) -> importers.ImportedSession:
    """Return the named conversation; `sources` are programs whose sessions may be read.

    Raises ConfigurationError unless exactly one is named, and for a program that is not allowed.
    """
    if (named.messages is None) == (named.source is None):
        raise ConfigurationError(
            "name one conversation: messages, or source (claude, codex or opencode) with the "
            "beginning of a session's id, or without for the newest"
        )
    if named.source is None:
        fields = {"messages": named.messages, "system": named.system, "tools": named.tools}
        given = {name: value for name, value in fields.items() if value is not None}
        return importers.parse(json.dumps(given).encode("utf-8", "surrogatepass"))
    if named.source not in sources:
        raise ConfigurationError(
            f"sessions of {named.source} are not shared here: this server was started with "
            f"--from {','.join(sorted(sources)) or 'none'}"
        )
    if named.session is None:
        found = importers.latest(named.source)
    else:
        found = importers.find(named.source, named.session)
    return importers.load(found, source=named.source)


def list_texts(session: importers.ImportedSession) -> Iterator[SearchSource]:
    """Yield the texts of a conversation with their references, oldest first."""
    body = Measurable(list(session.messages), session.tools, session.system, session.dialect)
    for place, message in enumerate(default().read(body).messages):
        texts = [part.text for part in message.parts] + [call.arguments for call in message.calls]
        yield from (SearchSource(reference(text), text, place) for text in texts if text)
