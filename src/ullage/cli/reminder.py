"""The reminder for a client that compacts by itself: the user's rules, tasks and values.

They are found by rules in the session file, in the user's own words, as in ullage's own
compactions. The module does not know the settings of hooks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ullage import importers
from ullage.core.facts.extract import Facts, collect, render
from ullage.core.messages.transcript import Message
from ullage.runtime import Measurable, default

MOST: Final = 8_000
"""Most characters of a reminder: Claude Code 2.1 and Codex 0.169 cut text over 10,000."""

BEFORE: Final = (
    "Keep these in the summary word for word. They were found by rule in the user's own messages "
    "and in the calls of tools:"
)
AFTER: Final = (
    "The conversation was compacted. This was said before, word for word, and rules still hold:"
)


def remind(event: str, transcript: str, source: str) -> str:
    """Return the output of a hook for an event, or "" if there is nothing to keep.

    Before a compaction it is text, after it the JSON that adds it to the conversation. Raises
    ConfigurationError for a session file that cannot be read.
    """
    if event not in ("PreCompact", "SessionStart"):
        return ""
    session = importers.load(transcript, source=source)
    read = default().read(Measurable(list(session.messages), dialect=session.dialect))
    summaries = frozenset(session.summaries)  # written by the client, in a message of the user
    facts = collect([m for place, m in enumerate(read.messages) if place not in summaries])
    facts = replace(facts, files=(), skills=(), said=(), found=(), results=())
    if event == "PreCompact":
        text = render(facts, MOST, len)
        return f"{BEFORE}\n{text}\n" if text else ""
    text = render(_drop_standing(facts, _find_summary(read.messages[session.start :])), MOST, len)
    if not text:
        return ""
    told = {"hookEventName": event, "additionalContext": f"{AFTER}\n{text}"}
    return json.dumps({"hookSpecificOutput": told})


def _find_summary(window: Sequence[Message]) -> str:
    """Return the window's text after a compaction, or "" if the file does not have it yet.

    Claude Code 2.1 writes its summary after its hooks have run: until then the window has answers.
    """
    if any(message.role == "assistant" for message in window):
        return ""
    return "\n".join(message.text for message in window)


def _drop_standing(facts: Facts, standing: str) -> Facts:
    """Return the facts that a text lacks word for word, without files and commands."""
    held = _flatten(standing)
    kept = {
        name: tuple(line for line in getattr(facts, name) if _flatten(line) not in held)
        for name in ("constraints", "tasks", "decisions", "identifiers")
    }
    return Facts(**kept)


def _flatten(text: str) -> str:
    return " ".join(text.split()).casefold()
