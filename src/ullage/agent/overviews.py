"""The overviews of the sessions of a log, kept in a small file, so that only new events are read.

The file may be lost, damaged, or written by another process at any time: an overview is continued
only if the log's events follow it in their chain. It holds no text of a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ullage.agent.overview import Overview
from ullage.core.errors import StoreError
from ullage.json_file import JsonFile
from ullage.storage.pieces import read_pieces

if TYPE_CHECKING:
    from ullage.storage.log import EventLog, Head

VERSION: Final = 1
"""Version of the file format; a file of another version is read as empty."""

FOLDER: Final = "sessions"

MOST: Final = 1_000
"""Most sessions of a log that are kept, the newest ones."""


class Overviews:
    """The overviews of one log; `folder` is the user's cache, or None to keep nothing.

    Call `save` after reading the overviews. Nothing is kept for a log in memory.
    """

    def __init__(self, log: EventLog, folder: Path | None) -> None:
        self._log = log
        url = log.url
        is_kept = folder is not None and not url.startswith("memory:")
        name = f"{blake2b(url.encode(), digest_size=16).hexdigest()}.json"
        self._file = JsonFile(folder / FOLDER if folder is not None and is_kept else None, name)
        self._kept: dict[str, Any] = self._file.load(_read_entries) or {}
        self._changed = False

    def read(self, head: Head) -> Overview:
        """Return the current overview of a session.

        Raises StoreError if the new events, or all of them, cannot be read. Damage to events that
        were read before is not found: `verify` reads all.
        """
        kept = self._find_kept(head)
        if kept is not None and kept.seq == head.seq:
            return kept
        found = None
        if kept is not None:
            with suppress(StoreError):  # purged, rewritten or damaged: read it all anew
                found = self._take_on(kept, head)
        found = self._take_on(Overview(), head) if found is None else found
        self._kept[head.session] = found.to_dict()
        self._changed = True
        return found

    def save(self, heads: Sequence[Head]) -> None:
        """Write the overviews; `heads` are all sessions of the log, the oldest first."""
        if not self._changed:
            return
        names = [head.session for head in heads][-MOST:]
        kept = {name: self._kept[name] for name in names if name in self._kept}
        self._file.save({"version": VERSION, "sessions": kept})
        self._changed = False

    def _find_kept(self, head: Head) -> Overview | None:
        """Return the kept overview of a session, or None if it cannot be continued."""
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # damaged: as if not there
            kept = Overview.from_dict(self._kept[head.session])
            is_same = kept.seq < head.seq or (kept.seq, kept.id) == (head.seq, head.id)
            return kept if kept.seq > 0 and is_same else None
        return None

    def _take_on(self, found: Overview, head: Head) -> Overview:
        for piece in read_pieces(self._log, head.session, found.seq):
            found.take(piece)
        return found


def _read_entries(data: Mapping[str, Any]) -> dict[str, Any]:
    if data["version"] != VERSION:
        return {}
    return dict(data["sessions"])
