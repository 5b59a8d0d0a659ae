"""What outlives the process: repeated evidence and providers' listings, in one small file.

Written whole and atomically; several processes may write, the last one wins. A file that cannot
be read or is of another version is replaced, never trusted and never fatal. It understands no
claim beyond its fields.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_args

from ullage.core.tokens.claim import Claim, Kind, Source, acceptable

log = logging.getLogger("ullage.windows")

VERSION: Final = 2
FILE: Final = "windows.json"


@dataclass(frozen=True, slots=True)
class StoredClaims:
    """Claims by key, and until when each key holds (seconds since the epoch)."""

    claims: Mapping[str, tuple[Claim, ...]] = field(default_factory=dict)
    until: Mapping[str, float] = field(default_factory=dict)


class Disk:
    """The file, or nothing at all where `folder` is None."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder is not None else None

    def load(self, now: float) -> StoredClaims:
        """Return what still holds; an unreadable file counts as empty, with one warning."""
        if self._path is None:
            return StoredClaims()
        try:
            entries = _entries(json.loads(self._path.read_text("utf-8")))
        except FileNotFoundError:
            return StoredClaims()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s is unreadable and will be replaced (%s)", self._path, error)
            return StoredClaims()
        held = {key: entry for key, entry in entries.items() if entry[1] > now}
        return StoredClaims(
            {k: c for k, (c, _) in held.items()}, {k: u for k, (_, u) in held.items()}
        )

    def save(self, kept: StoredClaims) -> None:
        """Write everything; trouble is one warning, since the process knows it all anyway."""
        if self._path is None:
            return
        entries = {
            key: {"claims": [asdict(c) for c in claims], "until": kept.until[key]}
            for key, claims in kept.claims.items()
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(self._path, json.dumps({"version": VERSION, "entries": entries}))
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)

    def clear(self) -> None:
        """Remove the file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _entries(data: Mapping[str, Any]) -> dict[str, tuple[tuple[Claim, ...], float]]:
    if data["version"] == 1:
        return {}  # from before the ledger: one event was enough then
    if data["version"] != VERSION:
        raise ValueError(f"its version is {data['version']!r}, this is {VERSION}")
    return {
        key: (tuple(_claim(c) for c in entry["claims"]), float(entry["until"]))
        for key, entry in data["entries"].items()
    }


def _replace(path: Path, text: str) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _claim(data: Mapping[str, Any]) -> Claim:
    """Read one claim; raises for anything that no resolver of ours would have written."""
    claim = Claim(**{f.name: data[f.name] for f in fields(Claim)})
    known = claim.kind in get_args(Kind) and claim.source in get_args(Source)
    if not known or not acceptable(claim):
        raise ValueError(f"a claim of {claim.tokens!r} tokens, {claim.kind!r} by {claim.source!r}")
    return claim
