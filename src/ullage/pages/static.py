"""Files that pages load: each name includes a hash, so that browsers may keep the file for ever.

Third-party files are pinned by the hashes of `static/vendored.json`; a changed file is not served.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from ullage.core.errors import ConfigurationError
from ullage.pages.inks import write_inks

KINDS: Final[Mapping[str, str]] = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
VENDORED: Final = "vendored.json"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file: its name with its hash, its kind, its bytes, and the hash that a page pins."""

    name: str
    kind: str
    data: bytes
    integrity: str


class Assets:
    """All files, read once. Raises ConfigurationError for a file that was changed."""

    def __init__(self) -> None:
        folder = files("ullage.pages").joinpath("static")
        pinned = json.loads(folder.joinpath(VENDORED).read_text("utf-8"))
        self._named: dict[str, Asset] = {}
        self._served: dict[str, Asset] = {}
        found = [(entry.name, entry.read_bytes()) for entry in folder.iterdir()]
        for file, data in (*found, ("inks.css", write_inks().encode())):
            stem, _, kind = file.rpartition(".")
            if kind not in KINDS:
                continue
            wanted = pinned.get(file, {}).get("sha256")
            if wanted is not None and hashlib.sha256(data).hexdigest() != wanted:
                raise ConfigurationError(
                    f"{file} of ullage's pages is not the file that was shipped: install "
                    "ullage again"
                )
            digest = hashlib.sha384(data).digest()
            name = f"{stem}.{digest.hex()[:12]}.{kind}"
            integrity = f"sha384-{base64.b64encode(digest).decode()}"
            made = Asset(name, KINDS[kind], data, integrity)
            self._named[file] = self._served[name] = made

    def get(self, name: str) -> Asset:
        """Return a file by its name in the source."""
        return self._named[name]

    def find(self, served: str) -> Asset | None:
        """Return a file by the name that it is served under, or None."""
        return self._served.get(served)
