"""Tell which results of tools are a person's own words: a tool of their client may ask them.

Such a tool is known by its name, never by what a result says: that may come from anywhere. These
are names that clients give tools of their own. A name with its server in front
(`mcp__NAME__ask_user`) is none of them; where a client takes bare names from servers, they are
believed.
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


@lru_cache(maxsize=1_024)  # of a history every call is asked for
def asks_person(tool: str) -> bool:
    """Tell whether a tool of this name asks a person."""
    (name,) = fold_names({tool: None})
    return _ASKING.fullmatch(name) is not None


def note_answer(message: Message, asked: dict[str, bool]) -> None:
    """Note in a message which of its parts a person answered to a tool.

    `asked` tells of the calls in front of it whether they ask a person; those of the message are
    added. Of a result whose call is not among them holds what was noted before.
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
    """Return the parts of a message that a person answered to a tool, as `note_answer` found."""
    found: frozenset[int] = message.memo.get(_KEY, _NONE)
    return found


def read_answer(text: str) -> str:
    """Return the words of an answer: of JSON its texts, a line each."""
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
