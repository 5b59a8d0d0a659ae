"""Data that outlives the process: repeated evidence and providers' listings, in one small file.

It understands no claim beyond its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_args

from ullage.core.tokens.claim import Claim, Kind, Source, acceptable
from ullage.json_file import JsonFile

VERSION: Final = 2
FILE: Final = "windows.json"


@dataclass(frozen=True, slots=True)
class StoredClaims:
    """Claims by key, and the time until which each key holds (seconds since the epoch)."""

    claims: Mapping[str, tuple[Claim, ...]] = field(default_factory=dict)
    until: Mapping[str, float] = field(default_factory=dict)


class Disk:
    """The file; does nothing if `folder` is None."""

    def __init__(self, folder: Path | None) -> None:
        self._file = JsonFile(folder, FILE)

    def load(self, now: float) -> StoredClaims:
        """Return the entries that still hold; an unreadable file gives none, with a warning."""
        entries = self._file.load(_entries) or {}
        held = {key: entry for key, entry in entries.items() if entry[1] > now}
        return StoredClaims(
            {k: c for k, (c, _) in held.items()}, {k: u for k, (_, u) in held.items()}
        )

    def save(self, kept: StoredClaims) -> None:
        """Write everything; a failure only logs one warning."""
        entries = {
            key: {"claims": [asdict(c) for c in claims], "until": kept.until[key]}
            for key, claims in kept.claims.items()
        }
        self._file.save({"version": VERSION, "entries": entries})

    def clear(self) -> None:
        """Remove the file."""
        self._file.clear()


def _entries(data: Mapping[str, Any]) -> dict[str, tuple[tuple[Claim, ...], float]]:
    if data["version"] == 1:
        return {}  # from before the ledger: then one event was enough
    if data["version"] != VERSION:
        raise ValueError(f"its version is {data['version']!r}, this is {VERSION}")
    return {
        key: (tuple(_claim(c) for c in entry["claims"]), float(entry["until"]))
        for key, entry in data["entries"].items()
    }


def _claim(data: Mapping[str, Any]) -> Claim:
    """Read one claim; raises an error for anything that our resolver would not have written."""
    claim = Claim(**{f.name: data[f.name] for f in fields(Claim)})
    known = claim.kind in get_args(Kind) and claim.source in get_args(Source)
    if not known or not acceptable(claim):
        raise ValueError(f"a claim of {claim.tokens!r} tokens, {claim.kind!r} by {claim.source!r}")
    return claim
