"""The bundled table: exact model ids, their conservative bounds and the claims that disagreed.

It is read on first use. A table that the user fetched takes precedence if it is newer and whole. It
asks nobody. `rows` knows the form of a table, `aliases` the ids of a model.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.errors.nearest import find
from ullage.core.tokens.claim import Claim
from ullage.windows import aliases
from ullage.windows.aliases import Name
from ullage.windows.rows import BROKEN, Book, Row, pack, whole

log = logging.getLogger("ullage.windows")

FILE: Final = "table.gz"
"""Name of the bundled table in this folder, and of a refreshed one in the user's cache folder."""

MOST_KNOWN: Final = 1_000
LONGEST: Final = 200
"""Limits of the cache of answers: entries, and characters of a model's name."""

_IGNORED: Final = "%s is ignored (%s); the bundled table holds"

ALIKE: Final = 0.75
"""Similarity that a suggested id needs; names of private models resemble many."""

DAY_S: Final = 24 * 3600.0


def folder() -> Path:
    """Return the user's cache folder of this package."""
    import platformdirs

    return platformdirs.user_cache_path("ullage", appauthor=False)


class WindowTable:
    """The rows that hold on this machine; `cache` is the folder of a refreshed table, if any."""

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        self._origin = "bundled"
        self._known: dict[tuple[str, str | None, str | None], tuple[Claim, ...]] = {}

    @cached_property
    def book(self) -> Book:
        """The table in use: the bundled one, or a newer one that the user fetched."""
        bundled = _load_bundled()
        path = (self._cache or folder()) / FILE
        try:
            fetched = Book.read(path.read_bytes())
        except FileNotFoundError:
            return bundled
        except (OSError, ValueError) as error:
            log.warning(_IGNORED, path, error)
            return bundled
        if fetched.at <= bundled.at:
            return bundled
        self._origin = "fetched"
        return fetched

    @property
    def snapshot(self) -> str:
        """The date of the table's sources, as YYYY-MM-DD."""
        return self.book.snapshot

    def row(
        self, model: str, provider: str | None = None, *, base_model: str | None = None
    ) -> Row | None:
        """Return the row of a model, or None without one; see `aliases.readings`.

        `base_model` is the operator's name for the model of a deployment, and replaces the
        deployment's name. Where every name is a deployment's (Azure), nothing else leads to a row.
        """
        if base_model is not None and provider is not None:
            names = aliases.behind(base_model, provider)
        else:
            names = aliases.readings(base_model or model, provider)
        try:
            return _first(self.book, names)
        except BROKEN as error:
            # Only a fetched table with a forged checksum: `Refresh` rejects broken rows.
            log.warning(_IGNORED, (self._cache or folder()) / FILE, error)
            self.book, self._origin = _load_bundled(), "bundled"
            self._known.clear()
            return _first(self.book, names)

    def suggest(self, model: str) -> str:
        """Return `did you mean 'x'?` for the id most similar to `model`, or "".

        A model with a row is not suggested for itself.
        """
        near = find(model, (row.model for row in self.book.rows()), cutoff=ALIKE)
        return "" if near in (None, model) else f"did you mean {near!r}?"

    def claims(
        self, model: str, provider: str | None = None, *, base_model: str | None = None
    ) -> tuple[Claim, ...]:
        """Return the claims of a model's row: first those that hold, then those that lost.

        Empty without a row. The arguments are those of `row`. Claims that lost are never below the
        bound, so the smallest of all claims is the bound.
        """
        asked = (model, provider, base_model)
        known = self._known.get(asked)
        if known is None:
            known = self._claims(self.row(model, provider, base_model=base_model))
            if len(self._known) < MOST_KNOWN and len(model) <= LONGEST:
                self._known[asked] = known
        return known

    def _claims(self, row: Row | None) -> tuple[Claim, ...]:
        if row is None:
            return ()
        at = self.book.at
        where = f"the {self._origin} table of {self.snapshot}"
        confidence, note = _trust(row), _note(row)
        held = [
            Claim(kind, tokens, "table", where, at, confidence, note)
            for kind, tokens in row.limits.items()
        ]
        lost = [
            Claim(loss.kind, loss.tokens, "table", f"{where}, {loss.lineage}", at, 0.3, "lost")
            for loss in row.losses
        ]
        return (*held, *lost)

    def ids(self, provider: str | None = None) -> list[str]:
        """Return the ids of one provider, or all ids that lead to a row by themselves, sorted.

        In the list of all, the makers' ids are bare, and the other ids begin with the provider and
        a slash. Models of deployments are left out.
        """
        if provider is not None:
            known = aliases.canonical(provider)
            return self.book.ids(known) if known is not None else []
        return sorted(set(self._list_names()))

    def _list_names(self) -> Iterator[str]:
        for provider in self.book.providers():
            if provider not in aliases.DEPLOYED:
                frame = "" if provider in aliases.VENDORS else f"{provider}/"
                for model in self.book.ids(provider):
                    yield f"{frame}{model}"

    def providers(self) -> list[str]:
        """Return the providers that have rows, sorted."""
        return self.book.providers()

    def provider(self, name: str) -> str | None:
        """Return the table's name for a provider, or None if it has no rows."""
        known = aliases.canonical(name)
        return known if known in self.providers() else None


def _load_bundled() -> Book:
    return Book.read(pkgutil.get_data("ullage.windows", FILE) or b"")


def _first(book: Book, names: Iterable[Name]) -> Row | None:
    return next((row for row in map(book.row, names) if row is not None), None)


def _trust(row: Row) -> float:
    """Return a confidence from 0.5 to 0.8: more per lineage, less if they disagree."""
    disputed = any(loss.kind != "output" for loss in row.losses)
    return round(min(0.5 + 0.1 * len(row.lineages), 0.8) - 0.1 * disputed, 1)


def _note(row: Row) -> str:
    """Name the lineages that list the model, and the reason if its bound was set by hand."""
    said = ", ".join(row.lineages) or "by hand"
    at = f"{row.model} at {row.provider}: {said}"
    return f"{at}; {row.rule}" if row.rule else at


@dataclass(frozen=True, slots=True)
class TableChange:
    """The effect of a fetched table: its rows, and the bounds that it would raise.

    `raises` holds (provider and id, bound now, bound then) in tokens, sorted.
    """

    snapshot: str
    rows: int
    raises: tuple[tuple[str, int, int], ...]


class Refresh:
    """A fetched table, compressed or as text; checked, but not installed yet.

    `origin` names it in messages; `now` is in seconds since the epoch. Raises ConfigurationError if
    it is not a whole table, or if its date is in the future.
    """

    def __init__(self, data: bytes, origin: str, now: float, cache: Path | None = None) -> None:
        self._path = (cache or folder()) / FILE
        # A web server may have sent the text; a file usually is as `make table` wrote it.
        self._data = pack(data) if data.startswith(b"{") else data
        try:
            self._book = Book.read(self._data)
            self._rows = whole(self._book)
        except ValueError as error:
            raise ConfigurationError(f"{origin} is no table of models: {error}") from error
        if self._book.at > now + DAY_S:
            raise ConfigurationError(
                f"{origin} says that it is of {self._book.snapshot}, which lies in the future"
            )

    def change(self, table: WindowTable) -> TableChange:
        """Compare it with the current table."""
        raised = []
        for row in table.book.rows():
            # Uses the aliases, since a dated row may be gone while the undated one is larger.
            then = _first(self._book, aliases.behind(row.model, row.provider))
            now, later = row.bound or 0, then.bound or 0 if then is not None else 0
            if later > now:
                raised.append((f"{row.provider}/{row.model}", now, later))
        return TableChange(self._book.snapshot, self._rows, tuple(raised))

    def install(self) -> Path:
        """Write the table into the user's cache folder, whole or not at all; return its path.

        Raises StoreError if it cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self._path, self._data)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error}") from error
        return self._path


def _replace(path: Path, data: bytes) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
