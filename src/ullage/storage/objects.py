"""Texts in object storage: what is written there, how it is read back, what is there.

An object is written once, under a name that no other has, and then named by the row that its text
stood in: whatever ends this in between leaves an object that no row names. Only this module knows
obstore. It knows neither sessions nor records.
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
"""What the place of a text begins with where the text itself is elsewhere: no JSON begins so."""

SCHEMES: Final = ("file", "s3", "gs", "az")
TIMEOUT: Final = timedelta(seconds=30)
ATTEMPTS: Final = 3
FEW: Final = 2
AT_ONCE: Final = 16
"""Objects that one reader fetches at once: a wait for a network is shared."""


class LostText(CorruptLog):
    """Report a text whose object is gone or is not what was written.

    `at` is its place among the texts that were asked for.
    """

    at = 0


@dataclass(frozen=True, slots=True)
class MovedText:
    """Where a text is: the URL of the place, the name of its object, its hash and bytes."""

    url: str
    name: str
    hash: str
    size: int

    def write(self) -> str:
        """Return what stands in the place of the text."""
        return MARK + json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> MovedText | None:
        """Return what a row says of where its text is, None where it holds the text itself."""
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
    `AWS_ACCESS_KEY_ID` and `AWS_ENDPOINT_URL`. With `create` a folder is made. Raises
    ConfigurationError for another URL and without the extra `objects`.
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
        """Write a text; return what says where it is. Raises StoreAway where that fails."""
        data = text.encode("utf-8", "surrogatepass")
        found = _hash(data)
        name = f"{found[:2]}/{found[:32]}-{secrets.token_hex(8)}"
        with self._asking(f"the object {name} cannot be written"):
            self._store.put(name, data)
            self._sync(name)
        return MovedText(self.url, name, found, len(data))

    def get(self, moved: MovedText) -> str:
        """Return a text. Raises LostText for a missing or changed object, StoreAway beyond that."""
        with self._asking(f"the object {moved.name} cannot be read"):
            data = bytes(self._store.get(moved.name).bytes())
        if _hash(data) != moved.hash:
            raise LostText(
                f"the object {moved} was changed after it was written ({len(data):,} bytes of "
                f"{moved.size:,}, another hash): restore it from a backup or an older version"
            )
        return data.decode("utf-8", "surrogatepass")

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; one that is gone is no error. Raises StoreAway where that fails."""
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
        """Hold errors of obstore in our words; its threads do not live on in a fork."""
        if self._folder is None and os.getpid() != _find_process():
            raise StoreAway(
                f"{what}: this process was forked from one that used {self.url}, and would wait "
                "for ever: start it by itself, as multiprocessing does with `spawn`"
            )
        with _translating(self.url, what):
            yield

    def _sync(self, name: str) -> None:
        """Have a file on disk before a row names it; a cloud has it when it answers."""
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
    """Reads texts back wherever they are: what a row says of that is enough."""

    def __init__(self) -> None:
        self._places: dict[str, ObjectPlace] = {}

    def resolve(self, texts: Sequence[str], *, lost: bool = False) -> list[str]:
        """Return texts, those fetched that are elsewhere.

        Raises LostText and StoreAway; with `lost` what cannot be read is left as it stands.
        """
        moved = [(n, found) for n, text in enumerate(texts) if (found := MovedText.read(text))]
        whole = list(texts)
        for (at, _), text in zip(moved, self._fetch(moved, lost=lost), strict=True):
            whole[at] = whole[at] if text is None else text
        return whole

    def forget(self, texts: Iterable[str]) -> None:
        """Delete the objects that rows named which are gone; what fails is told and left.

        `ullage originals sweep` names what is left so.
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
        """Return texts in the order of `moved`: the place of each among others, and where it is."""

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
"""What the body of an original begins with that is elsewhere: no text in UTF-8 has this byte."""


def pack_original(text: str) -> bytes:
    """Return the body of an original: its text, or what says where that is."""
    data = text.encode("utf-8", "surrogatepass")
    return data if MovedText.read(text) is None else ELSEWHERE + data


def unpack_original(body: bytes) -> str:
    """Return what a body holds: the text, or what says where it is."""
    return body.removeprefix(ELSEWHERE).decode("utf-8", "surrogatepass")


def read_original(reader: ObjectReader, body: bytes) -> str:
    """Return the text of an original; raises LostText and StoreAway for one that is elsewhere."""
    text = unpack_original(body)
    return reader.resolve([text])[0] if body.startswith(ELSEWHERE) else text


@cache
def _find_process() -> int:
    """Return the process that used object storage first: obstore's threads live in it alone."""
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
        # Options of the client are left alone: to give one would end what AWS_ALLOW_HTTP says.
        return from_url(url, retry_config={"max_retries": ATTEMPTS, "retry_timeout": TIMEOUT})


@contextmanager
def _translating(url: str, what: str) -> Iterator[None]:
    """Have errors of obstore come out as ours, in one line."""
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
