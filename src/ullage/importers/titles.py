"""The title of a session: from its file, or else the user's first words.

It knows the texts that programs write into user messages; those are no titles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ullage.importers.session import words
from ullage.importers.tree import Node

LONGEST: Final = 80
"""Characters of a title."""

_FIELDS: Final[Mapping[str, str]] = {
    "custom-title": "customTitle",
    "ai-title": "aiTitle",
    "summary": "summary",
}
"""Lines that name a session, most specific first, and the field with the name."""

_WRITTEN: Final = (
    "<command-", "<local-command-", "<bash-", "<system-reminder>", "<user-prompt-submit-hook>",
    "<task-notification>", "Caveat: The messages below", "[Request interrupted",
)  # fmt: skip
"""First words of texts that Claude Code wrote itself."""


def of(others: Sequence[Mapping[str, Any]], nodes: Iterable[Node]) -> str | None:
    """Return the title of a Claude Code session, or None if the user said nothing."""
    for kind, field in _FIELDS.items():
        named = (words(o.get(field)) for o in reversed(others) if o.get("type") == kind)
        title = next((name for name in named if name), None)
        if title is not None:
            return line(title)
    said = (first_words(node) for node in nodes)
    return next((text for text in said if text), None)


def first_words(node: Node) -> str | None:
    """Return the user's text in a line, or None for any other line."""
    if node.kind != "user" or node.summarises or node.answers or node.fields.get("isMeta") is True:
        return None
    content = node.message.get("content")
    texts = [content] if isinstance(content, str) else [b.get("text") for b in node.blocks]
    told = (t for t in texts if isinstance(t, str) and not t.lstrip().startswith(_WRITTEN))
    return next((line(text) for text in told if text.strip()), None)


def line(text: str) -> str:
    """Return a text's words on one line of at most `LONGEST` characters."""
    said = " ".join(text[: 4 * LONGEST].split())
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1].rstrip()}…"
