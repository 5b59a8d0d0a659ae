"""Reasoning that an edit unbinds: a model signed it after messages that are no longer there.

If `Rules.bound` holds, a provider refuses such reasoning, and everything after it. This module
reads `Rules` and knows no dialect, no model and no tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.core.compaction.edits import Script

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ullage.core.messages.transcript import Transcript


def strip_behind(transcript: Transcript, first: int = 0, drops: Collection[int] = ()) -> Script:
    """Return the strips of all reasoning from `first` on, except in dropped messages."""
    messages = transcript.messages
    kept = (i for i in range(first, len(messages)) if i not in drops)
    return Script(strips=frozenset(i for i in kept if messages[i].has_reasoning))


def unbind(transcript: Transcript, script: Script) -> Script:
    """Return a script that also removes the reasoning that its own edits unbind."""
    first = min(_list_places(script), default=None)
    if first is None or not transcript.rules.bound:
        return script
    return script | strip_behind(transcript, first, script.drops)


def _list_places(script: Script) -> Iterator[int]:
    """Yield the positions that a script changes."""
    yield from script.drops
    yield from (clear.message for clear in script.clears)
    yield from (insert.before for insert in script.inserts)
    yield from script.strips
