"""The guard's state of one session, as plain data that a framework keeps in its own state.

Compactions are kept with the texts that they left out, so that another process continues the
session with the same prompt. It knows no framework.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.edits import find_references
from ullage.core.errors import StoreError
from ullage.core.guard.conversation import Conversation
from ullage.storage import MemoryStore

VERSION: Final = 1
"""Schema version of a state."""


def dump_state(store: MemoryStore, mark: str) -> dict[str, Any]:
    """Return the compactions whose scope contains `mark`, in the lists and dicts of JSON.

    Frameworks refuse to read other types, such as named tuples, from their stored state. Only the
    newest conversation record is included, because it builds on the older ones.
    """
    checkpoints = [c.to_dict() for c in store.checkpoints.list_records() if mark in c.scope]
    newest = [c for c in store.conversations.list_records() if mark in c.scope]
    names = find_references(repr(checkpoints))
    texts = {name: store.originals.read(name) for name in sorted(names)}
    state = {
        "version": VERSION,
        "checkpoints": checkpoints,
        "conversations": [conversation.to_dict() for conversation in newest[-1:]],
        "originals": {name: text for name, text in texts.items() if text is not None},
    }
    plain: dict[str, Any] = json.loads(json.dumps(state))  # records have tuples of their own
    return plain


def load_state(store: MemoryStore, state: Any) -> None:
    """Take in the records of a state, unless the store has newer ones.

    Raises StoreError if the state has another version or is damaged.
    """
    version = state.get("version") if isinstance(state, Mapping) else None
    if version != VERSION:
        raise StoreError(
            f"the state of a session is of schema version {version!r}, and this "
            f"ullage reads version {VERSION}: upgrade ullage, or drop the state to begin anew"
        )
    try:
        for data in state["checkpoints"]:
            store.checkpoints.save(Checkpoint.from_dict(data))
        for data in state["conversations"]:
            store.conversations.save(Conversation.from_dict(data))
        store.originals.keep(state["originals"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"the state of a session is damaged ({error!r}): drop it to begin anew"
        ) from error
