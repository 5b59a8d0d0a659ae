"""The paths of the pages, known without loading the code that draws them."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/ullage/"
LIVE: Final = f"{PREFIX}live"
LIST: Final = f"{PREFIX}conversations"
CONVERSATION: Final = f"{PREFIX}conversation"
MESSAGES: Final = f"{PREFIX}messages"
COMPACTION: Final = f"{PREFIX}compaction"
RECEIPT: Final = f"{PREFIX}receipt"
POLICIES: Final = f"{PREFIX}policies"
ACT: Final = f"{PREFIX}act"
QUEUE: Final = f"{PREFIX}queue"
STATIC: Final = f"{PREFIX}static/"

PATHS: Final = frozenset(
    {"/", LIVE, LIST, CONVERSATION, MESSAGES, COMPACTION, RECEIPT, POLICIES, QUEUE, ACT}
)


def is_page(path: str) -> bool:
    """Tell whether a path belongs to the pages."""
    return path in PATHS or path.startswith(STATIC)
