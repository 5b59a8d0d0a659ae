"""Texts in object storage: writes them, reads them back, and lists them.

An object is written once, under a unique name. Then the row that held the text names the object. If
the process ends between the two steps, it leaves an object that no row names. Only this module
knows obstore. It knows neither sessions nor records.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from ullage.core.errors import ConfigurationError, CorruptLog, StoreAway, StoreError
from ullage.core.errors.extras import explain_missing

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = logging.getLogger(__name__)

MARK: Final = "object:"
"""Prefix of a reference to a moved text; no JSON begins with it."""

SCHEMES: Final = ("file", "s3", "gs", "az")
TIMEOUT: Final = timedelta(seconds=30)
ATTEMPTS: Final = 3
FEW: Final = 2
AT_ONCE: Final = 16
"""Objects that one reader fetches at once, so that their network waits overlap."""


class LostText(CorruptLog):
    """Report a text whose object is gone or has changed.

    `at` is its position among the requested texts.
    """

    at = 0


@dataclass(frozen=True, slots=True)
class MovedText:
    """The location of a text: the URL of the place, the name of its object, its hash and bytes."""

    url: str
    name: str
    hash: str
    size: int

    def write(self) -> str:
        """Return the reference that replaces the text."""
        return MARK + json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> MovedText | None:
        """Return the location in a reference, or None if the row holds the text itself."""
        if not text.startswith(MARK):
            return None
        try:
            return cls(**json.loads(text[len(MARK) :]))
        except (TypeError, ValueError):
            return None

    def __str__(self) -> str:
        return f"{self.url}/{self.name}"


class ObjectPlace:
    """A folder or a bucket by its URL: `file:///srv/texts`, `s3://bucket/prefix`, `gs:`, `az:`.

    Credentials, region and endpoint of a cloud come from its usual variables, such as
    `AWS_ACCESS_KEY_ID` and `AWS_ENDPOINT_URL`. With `create` a missing folder is made. Raises
    ConfigurationError for another URL, or if the extra `objects` is missing.
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(url)
        known = parts.scheme in SCHEMES and (parts.netloc or parts.scheme == "file")
        if (
            not known
            or "@" in parts.netloc
            or parts.query
            or (parts.scheme == "file" and parts.netloc)
        ):
            raise ConfigurationError(
                f"{url!r:.200} names no place for objects: give file:///FOLDER, "
                "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, no password"
            )
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None
        if self._folder is not None and create:
            with _translating(self.url, "its folder cannot be made"):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._store = _open_store(self.url)

    def put(self, text: str) -> MovedText:
        """Write a text; return its location. Raises StoreAway if that fails."""
        data = text.encode("utf-8", "surrogatepass")
        found = _hash(data)
        name = f"{found[:2]}/{found[:32]}-{secrets.token_hex(8)}"
        with self._asking(f"the object {name} cannot be written"):
            self._store.put(name, data)
            self._sync(name)
        return MovedText(self.url, name, found, len(data))

    def get(self, moved: MovedText) -> str:
        """Return a text. Raises LostText for a missing or changed object, StoreAway otherwise."""
        with self._asking(f"the object {moved.name} cannot be read"):
            data = bytes(self._store.get(moved.name).bytes())
        if _hash(data) != moved.hash:
            raise LostText(
                f"the object {moved} was changed after it was written ({len(data):,} bytes of "
                f"{moved.size:,}, another hash): restore it from a backup or an older version"
            )
        return data.decode("utf-8", "surrogatepass")

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; a missing one is no error. Raises StoreAway if that fails."""
        for name in names:
            try:
                with self._asking(f"the object {name} cannot be deleted"):
                    self._store.delete(name)
            except LostText:
                continue

    def list_objects(self, before: float) -> Iterator[tuple[str, int]]:
        """Yield name and bytes of the objects last written before a time, in Unix seconds."""
        with self._asking("its objects cannot be listed"):
            for many in self._store.list():
                for one in many:
                    if one["last_modified"].timestamp() < before:
                        yield one["path"], one["size"]

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Translate obstore's errors; refuse a forked process, where its threads do not exist."""
        if self._folder is None and os.getpid() != _find_process():
            raise StoreAway(
                f"{what}: this process was forked from one that used {self.url}, and would wait "
                "for ever: start it by itself, as multiprocessing does with `spawn`"
            )
        with _translating(self.url, what):
            yield

    def _sync(self, name: str) -> None:
        """Sync a file to disk before a row names it; a cloud stores it before it answers."""
        if self._folder is None:
            return
        path = self._folder / name
        for each in (path, path.parent, self._folder):
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class ObjectReader:
    """Reads texts from any place; the reference in a row is enough."""

    def __init__(self) -> None:
        self._places: dict[str, ObjectPlace] = {}

    def resolve(self, texts: Sequence[str], *, lost: bool = False) -> list[str]:
        """Return texts; those stored elsewhere are fetched.

        Raises LostText and StoreAway; with `lost` a text that cannot be read keeps its reference.
        """
        moved = [(n, found) for n, text in enumerate(texts) if (found := MovedText.read(text))]
        whole = list(texts)
        for (at, _), text in zip(moved, self._fetch(moved, lost=lost), strict=True):
            whole[at] = whole[at] if text is None else text
        return whole

    def forget(self, texts: Iterable[str]) -> None:
        """Delete the objects of removed rows; log and leave those that cannot be deleted.

        `ullage originals sweep` lists the objects that were left.
        """
        for text in texts:
            moved = MovedText.read(text)
            if moved is None:
                continue
            try:
                self._find_place(moved.url).delete([moved.name])
            except (StoreError, ConfigurationError) as error:
                log.warning(
                    "the object %s is named by no row any more, and stays: %s", moved, error
                )

    def _fetch(self, moved: Sequence[tuple[int, MovedText]], *, lost: bool) -> list[str | None]:
        """Return texts in the order of `moved`, which holds positions and locations."""

        def read(one: tuple[int, MovedText]) -> str | None:
            try:
                return self._find_place(one[1].url).get(one[1])
            except StoreError as error:
                if lost:
                    return None
                if isinstance(error, LostText):
                    error.at = one[0]
                raise

        if len(moved) < FEW:
            return [read(one) for one in moved]
        with ThreadPoolExecutor(min(AT_ONCE, len(moved)), "ullage-objects") as threads:
            return list(threads.map(read, moved))

    def _find_place(self, url: str) -> ObjectPlace:
        found = self._places.get(url)
        if found is None:
            found = self._places.setdefault(url, ObjectPlace(url))
        return found


ELSEWHERE: Final = b"\xff"
"""First byte of an original's body that is stored elsewhere: no UTF-8 text has this byte."""


def pack_original(text: str) -> bytes:
    """Return the body of an original: its text, or the reference to it."""
    data = text.encode("utf-8", "surrogatepass")
    return data if MovedText.read(text) is None else ELSEWHERE + data


def unpack_original(body: bytes) -> str:
    """Return the contents of a body: the text, or the reference to it."""
    return body.removeprefix(ELSEWHERE).decode("utf-8", "surrogatepass")


def read_original(reader: ObjectReader, body: bytes) -> str:
    """Return the text of an original; raises LostText and StoreAway for one stored elsewhere."""
    text = unpack_original(body)
    return reader.resolve([text])[0] if body.startswith(ELSEWHERE) else text


@cache
def _find_process() -> int:
    """Return the process that used object storage first; obstore's threads exist only in it."""
    return os.getpid()


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()


def _open_store(url: str) -> ObjectStore:
    try:
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise explain_missing(f"the place {url!r} for objects", error.name) from error
    with _translating(url, "it cannot be opened"):
        if url.startswith("file:"):
            return from_url(url)
        _find_process()
        # Do not set client options: any option would override AWS_ALLOW_HTTP.
        return from_url(url, retry_config={"max_retries": ATTEMPTS, "retry_timeout": TIMEOUT})


@contextmanager
def _translating(url: str, what: str) -> Iterator[None]:
    """Translate obstore's errors into ours, on one line."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError as error:
        raise LostText(
            f"{what}: {url} has no such object: restore it from a backup or an older version"
        ) from error
    except (BaseError, OSError) as error:
        said = str(error).partition("\n")[0]
        raise StoreAway(
            f"{what} in {url} ({said}): check that it is there, its credentials and the network"
        ) from error
