"""Find tool results that are a person's own words: a client may have a tool that asks them.

Such a tool is recognised by its name, never by the text of a result, which may come from anywhere.
The names are those of clients' own tools. A name with a server as prefix (`mcp__NAME__ask_user`)
does not match. If a client takes bare names from servers, they are trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ullage.core.facts.patterns import LatePattern
from ullage.core.messages.labels import fold_names

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Message

_ASKING: Final = LatePattern(
    r"ask_user(?:_questions?)?|(?:vscode_)?ask_(?:followup_)?questions?|request_user_input"
    r"|question|human"
)
"""Tools that ask a person: Claude Code's AskUserQuestion, Codex' request_user_input, Gemini CLI's
ask_user, opencode's question, VS Code's askQuestions, Cline's ask_followup_question, LangChain's
human."""

_KEY: Final = "answers"
_NONE: Final = frozenset[int]()

LEAVES: Final = 100
"""Texts of an answer in JSON that are read."""


@lru_cache(maxsize=1_024)  # every call of a history is tested
def asks_person(tool: str) -> bool:
    """Tell whether a tool of this name asks a person."""
    (name,) = fold_names({tool: None})
    return _ASKING.fullmatch(name) is not None


def note_answer(message: Message, asked: dict[str, bool]) -> None:
    """Note in a message which of its parts are a person's answers to a tool.

    `asked` tells for each earlier call whether it asks a person; the calls of the message are
    added. A result whose call is not in `asked` keeps its earlier note.
    """
    for call in message.calls:
        asked[call.id] = asks_person(call.name)
    if message.results and (_KEY in message.memo or any(map(asked.get, message.results))):
        known = list_answers(message)
        parts = [(n, p.answers) for n, p in enumerate(message.parts) if p.kind == "result"]
        found = frozenset(n for n, call in parts if asked.get(call or "", n in known))
        if found != known:  # equal messages of other histories are one object
            message.memo[_KEY] = found
            message.forget_findings()


def list_answers(message: Message) -> frozenset[int]:
    """Return the parts of a message that `note_answer` found to be a person's answers."""
    found: frozenset[int] = message.memo.get(_KEY, _NONE)
    return found


def read_answer(text: str) -> str:
    """Return the words of an answer; for JSON its texts, one per line."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(list(_list_leaves(found))[:LEAVES])


def _list_leaves(value: Any) -> Iterator[str]:
    """Yield the texts in a value, in order."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += reversed(one.values())
        elif isinstance(one, list):
            waiting += reversed(one)
