"""`ullage doctor --verify`: check that the installed files match the records of their packages.

A wheel brings a record (RECORD) with the hash and the size of each of its files. The module knows
packages and files, but no servers or settings, and imports no package that it checks.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import ullage
from ullage.cli.glyphs import clean
from ullage.core.errors import ConfigurationError

OWN: Final = "ullage"

MADE_BY_VENV: Final = ("_virtualenv.pth", "import _virtualenv")
"""The file that uv and virtualenv add to an environment, and its content."""

ADDED: Final = "is in no record"
"""The message about a file in a package's folder that was not installed with it."""

AT_START: Final = ("sitecustomize.py", "usercustomize.py")
"""Files that Python runs at every start, in addition to `.pth` files."""


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A file that differs from its record."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class VerifiedPackage:
    """One package: `files` were compared, `compiled` ones (.pyc) were not checked.

    `editable` is the folder of its source, or "".
    """

    name: str
    version: str
    place: str
    editable: str
    files: int
    compiled: int
    differences: tuple[FileDifference, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a check; `loose` are files that Python runs at its start without a record."""

    packages: tuple[VerifiedPackage, ...]
    loose: tuple[FileDifference, ...]

    @property
    def intact(self) -> bool:
        """True if nothing differs."""
        return not self.loose and not any(one.differences for one in self.packages)


def run(scope: str, *, as_json: bool) -> int:
    """Print the differences of ullage, with `all` of its dependencies too; exit code 1 for any."""
    found = verify(scope)
    plain: dict[str, Any] = {"intact": found.intact, **asdict(found)}
    print(json.dumps(plain, indent=2) if as_json else "\n".join(map(clean, _describe(found))))
    return 0 if found.intact else 1


def verify(scope: str = OWN) -> Verification:
    """Compare the files of ullage with its record, with `all` those of its dependencies too.

    Raises ConfigurationError if this Python has no installation of ullage.
    """
    here: dict[str, Distribution] = {}
    for one in distributions():
        if name := one.metadata["Name"]:  # the rest of a broken removal has no name
            here.setdefault(_normalize(name), one)
    if OWN not in here:
        raise ConfigurationError(
            f"no record of ullage is among the packages of {sys.prefix}: it runs from "
            f"{Path(ullage.__file__).parent}; install it: pip install ullage"
        )
    owned = {path for one in here.values() for path, _, _ in _read_record(one)}
    chosen = sorted(_reach(here)) if scope == "all" else [OWN]
    packages = tuple(_verify_package(here[name], owned) for name in chosen)
    places = dict.fromkeys(one.place for one in packages)
    return Verification(packages, tuple(d for place in places for d in _find_loose(place, owned)))


def _normalize(name: str) -> str:
    """Return a name in the form that PyPI compares (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _reach(here: Mapping[str, Distribution]) -> set[str]:
    """Return the installed packages that ullage may need, with any extra."""
    seen, left = {OWN}, [OWN]
    while left:
        for line in here[left.pop()].requires or ():
            name = _normalize(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0])
            if name in here and name not in seen:
                seen.add(name)
                left.append(name)
    return seen


def _locate(found: Distribution) -> str:
    return os.path.realpath(str(found.locate_file("")))


def _read_record(found: Distribution) -> Iterator[tuple[str, str, str]]:
    """Yield path, hash and size of each file of a record; a path is absolute."""
    place = _locate(found)
    for row in csv.reader((found.read_text("RECORD") or "").splitlines()):
        if row:
            path, hashed, size = (*row, "", "")[:3]
            yield os.path.normpath(Path(place, path)), hashed, size


def _verify_package(found: Distribution, owned: set[str]) -> VerifiedPackage:
    place = _locate(found)
    rows = list(_read_record(found)) if Path(place).is_dir() else []
    editable = _find_source(found)
    differences = [d for row in rows if (d := _compare(*row, place)) is not None]
    if not rows:
        why = "no record of its files is installed: nothing of it can be checked"
        differences.append(FileDifference(place, why))
    lying = set(_walk_folders((path for path, _, _ in rows), place))
    compiled = {path for path in lying if _is_compiled(path, owned)}
    differences += [
        FileDifference(os.path.relpath(path, place), ADDED)
        for path in sorted(lying - owned - compiled)
    ]
    if _normalize(found.name) == OWN:
        differences += _find_elsewhere(editable, owned)
    compared = sum([bool(hashed) for _, hashed, _ in rows])
    return VerifiedPackage(
        found.name, found.version, place, editable, compared, len(compiled), tuple(differences)
    )


def _find_source(found: Distribution) -> str:
    """Return the folder of an editable installation (PEP 610), or ""."""
    told = json.loads(found.read_text("direct_url.json") or "{}")
    if not told.get("dir_info", {}).get("editable"):
        return ""
    return unquote(urlsplit(told.get("url", "")).path)


def _compare(path: str, hashed: str, size: str, place: str) -> FileDifference | None:
    """Return how a file differs from its row of the record, or None."""
    shown = os.path.relpath(path, place)
    kind, _, digest = hashed.partition("=")
    if not hashed:
        unhashed = path.endswith((".pyc", f"{os.sep}RECORD"))  # as the standard says
        return None if unhashed else FileDifference(shown, "has no hash in the record")
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return FileDifference(shown, "is missing")
    except OSError as error:
        return FileDifference(shown, f"cannot be read: {error.strerror}")
    if size and size != str(len(data)):
        return FileDifference(shown, f"has {len(data)} bytes; the record says {size:.20}")
    if kind not in hashlib.algorithms_guaranteed:
        return FileDifference(shown, f"has a hash of an unknown kind in the record: {kind!r:.20}")
    made = urlsafe_b64encode(hashlib.new(kind, data).digest()).decode().rstrip("=")
    return None if made == digest else FileDifference(shown, f"has another {kind} than recorded")


def _walk_folders(recorded: Iterable[str], place: str) -> Iterator[str]:
    """Yield the paths of all files in a package's folders."""
    inside = [Path(path).relative_to(place).parts for path in recorded if _is_below(path, place)]
    for folder in sorted({parts[0] for parts in inside if len(parts) > 1}):
        for root, _, names in os.walk(Path(place, folder)):
            yield from (str(Path(root, name)) for name in names)


def _is_compiled(path: str, owned: set[str]) -> bool:
    """Tell whether a file was compiled by Python from a recorded one."""
    found = Path(path)
    if found.parent.name != "__pycache__" or found.suffix != ".pyc":
        return False
    source = found.parent.parent / f"{found.name.partition('.')[0]}.py"
    return path in owned or str(source) in owned


def _is_below(path: str, place: str) -> bool:
    return path.startswith(place.rstrip(os.sep) + os.sep)


def _find_elsewhere(editable: str, owned: set[str]) -> Iterator[FileDifference]:
    """Yield the running copy of ullage, if it is not the one that was checked."""
    runs = os.path.realpath(ullage.__file__)
    meant = _is_below(runs, os.path.realpath(editable)) if editable else runs in owned
    if not meant:
        yield FileDifference(runs, "runs as ullage, and is not of this installation")


def _find_loose(place: str, owned: set[str]) -> Iterator[FileDifference]:
    """Yield the files that Python runs at its start without a record."""
    for path in sorted(Path(place).glob("*.*")):
        if (path.suffix == ".pth" or path.name in AT_START) and str(path) not in owned:
            name, content = MADE_BY_VENV
            if path.name != name or path.read_text("utf-8", "replace").strip() != content:
                what = f"{ADDED}, and Python reads it at every start"
                yield FileDifference(str(path), what)


def _describe(found: Verification) -> Iterator[str]:
    for one in found.packages:
        if one.editable:
            yield (
                f"{one.name} {one.version} is an editable installation: its modules are those in "
                f"{one.editable}, which no record names; only its metadata was compared"
            )
    count = sum(one.files for one in found.packages)
    first = found.packages[0]
    whole = f"{first.name} {first.version}" if len(found.packages) == 1 else ""
    yield f"{whole or f'{len(found.packages)} packages'}: {count:,} files compared with the record"
    if compiled := sum(one.compiled for one in found.packages):
        yield (
            f"what Python compiled was not looked at (.pyc: {compiled:,}): delete the folders "
            "__pycache__, and Python writes it anew"
        )
    for one in found.packages:
        for difference in one.differences:
            yield f"  ! {one.name} {one.version}: {difference.path} {difference.what}"
        kinds = {difference.what == ADDED for difference in one.differences}
        if False in kinds:
            again = f"pip install --force-reinstall --no-deps '{one.name}=={one.version}'"
            yield f"    fix: look at what changed it, then {again}"
        if True in kinds:
            yield (
                f"    fix: find out what put there what {ADDED}, and delete it: pip leaves it "
                "where it is"
            )
    for loose in found.loose:
        yield f"  ! {loose.path} {loose.what}"
        yield "    fix: find out what put it there; delete it if you do not want it"
    yield "nothing differs" if found.intact else "the installation is not as recorded"
