"""Where requests are prepared: small ones in the event loop, large ones in threads beside it.

It knows no guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.threads import Threads

if TYPE_CHECKING:
    from ullage.core.guard.request import Request

THREADS: Final = Threads("ullage-planning", 2)
"""Two: they take turns with the loop at the interpreter's lock, so more would stall it again."""

MANY: Final = 500
"""Messages beyond which a request is prepared in a thread."""

LONG: Final = 100_000
"""Characters of text beyond which a request is prepared in a thread."""


def is_large(request: Request) -> bool:
    """Tell whether preparing a request would keep an event loop from its other work."""
    messages: Sequence[Any] = request.messages
    if len(messages) > MANY:
        return True
    left = LONG - len(request.system or "")
    for message in messages:
        left -= _size(message)
        if left < 0:
            return True
    return False


def _size(message: Any) -> int:
    """Return the characters of a message's text, roughly: what is no text counts a little."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        return sum(_size_of_block(block) for block in content)
    return 0 if content is None else len(str(content))


def _size_of_block(block: Any) -> int:
    text = block.get("text", block.get("content")) if isinstance(block, Mapping) else None
    return len(text) if isinstance(text, str | list) else 0
