"""Writes the bill of materials of a wheel (CycloneDX 1.6): `make sbom`, `make dist`.

The wheel itself gives its requirements and bundled files. requirements/ gives versions, hashes and
dependencies, and requirements/licences.toml licences. It asks no registry and no installation, and
writes the same bytes for the same wheel.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Any, Final

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement

from tools.licences import find_licence, read_table
from tools.locks import FOLDER, Locked, normalize, read_lock, read_product

ASIDE: Final = "dev"
"""The extra for development only; it is not in the bill."""
EXTRA: Final = re.compile(r"""extra == ['"]([^'"]+)""")
STATIC: Final = "ullage/pages/static/"
PAGES: Final = "ullage/docs.zip"
LOADED: Final = (".css", ".js")
"""Endings of files that pages load; the rest of the built pages is ours."""
WORDINGS: Final[Mapping[str, str]] = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "ISC License": "ISC",
    "MIT License": "MIT",
}
"""Packages' own names of licences, and the SPDX names."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel by its metadata: the packages of each extra, by normalized name; "" is the core."""

    path: Path
    version: str
    licence: str
    named: Mapping[str, frozenset[str]]
    files: Mapping[str, bytes]
    made: str
    """The date of its files (ISO 8601)."""


def read_wheel(path: Path) -> Wheel:
    """Read a wheel."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        files = {one.filename: archive.read(one) for one in entries}
    (head,) = [one for one in entries if one.filename.endswith(".dist-info/METADATA")]
    told = Parser().parsestr(files[head.filename].decode())
    year, month, day, *clock = head.date_time
    made = f"{year}-{month:02}-{day:02}T{':'.join(f'{part:02}' for part in clock)}Z"
    named = sort_requirements(told.get_all("Requires-Dist", []))
    return Wheel(path, told["Version"], told["License-Expression"], named, files, made)


def sort_requirements(lines: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the packages of each extra; extras of ullage inside an extra are expanded."""
    named: dict[str, set[str]] = {}
    taken: dict[str, set[str]] = {}
    for requirement in map(Requirement, lines):
        found = EXTRA.search(str(requirement.marker))
        extra = found[1] if found else ""
        own = normalize(requirement.name) == "ullage"
        named.setdefault(extra, set()).update(() if own else {normalize(requirement.name)})
        taken.setdefault(extra, set()).update(requirement.extras if own else ())
    for extra, others in taken.items():
        named[extra].update(*(named[other] for other in others))
    return {extra: frozenset(names) for extra, names in named.items() if extra != ASIDE}


def find_edges(packages: Mapping[str, Locked]) -> dict[str, list[str]]:
    """Return the requirements of each package, among the given ones."""
    return {
        name: sorted(other for other, each in packages.items() if name in each.parents)
        for name in packages
    }


def reach(named: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Return all packages that some packages bring, including themselves."""
    found: set[str] = set()
    waiting = [*named]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges[name]
    return found


def describe_licence(told: str) -> list[dict[str, Any]]:
    """Return a licence for CycloneDX: by its SPDX name if it has one, else in its own words."""
    try:
        known = canonicalize_license_expression(WORDINGS.get(told, told))
    except InvalidLicenseExpression:
        return [{"license": {"name": told, "acknowledgement": "declared"}}]
    return [{"expression": known, "acknowledgement": "declared"}]


def describe_hashes(*sums: str) -> list[dict[str, str]]:
    """Return SHA-256 sums in the form of CycloneDX."""
    return [{"alg": "SHA-256", "content": each} for each in sums]


def describe_package(each: Locked, extras: Collection[str], licence: str) -> dict[str, Any]:
    """Return a package of a lock as a component; `extras` bring it, where "" is the core."""
    purl = f"pkg:pypi/{each.name}@{each.version}"
    told = [("ullage:extra", extra) for extra in sorted(extras) if "" not in extras]
    told += [("ullage:marker", each.marker)] if each.marker else []
    component = {
        "type": "library",
        "bom-ref": purl,
        "name": each.name,
        "version": each.version,
        "scope": "required" if "" in extras else "optional",
        "hashes": describe_hashes(*each.hashes),
        "licenses": describe_licence(licence),
        "purl": purl,
    }
    properties = [{"name": name, "value": value} for name, value in told]
    return component | ({"properties": properties} if properties else {})


def describe_bundled(
    purl: str, name: str, licence: str, files: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return a third-party part of the wheel, with each of its files."""
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": purl.rpartition("@")[2],
        "scope": "required",
        "licenses": describe_licence(licence),
        "purl": purl,
        "properties": [{"name": "ullage:bundled", "value": "true"}],
        "components": [
            {
                "type": "file",
                "bom-ref": f"file:{where}",
                "name": where,
                "hashes": describe_hashes(hashlib.sha256(data).hexdigest()),
            }
            for where, data in sorted(files.items())
        ],
    }


def list_bundled(wheel: Wheel, written: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the third-party scripts and styles in the wheel."""
    pinned = json.loads(wheel.files[f"{STATIC}vendored.json"])
    for name in sorted({told["package"] for told in pinned.values()}):
        own = {file: told for file, told in pinned.items() if told["package"] == name}
        told = next(iter(own.values()))
        files = {f"{STATIC}{file}": wheel.files[f"{STATIC}{file}"] for file in own}
        yield describe_bundled(
            f"pkg:npm/{name}@{told['version']}", name, str(told["licence"]), files
        )
    if PAGES in wheel.files:
        number = read_lock(FOLDER / "site.txt")["zensical"].version
        with zipfile.ZipFile(io.BytesIO(wheel.files[PAGES])) as archive:
            names = [n for n in archive.namelist() if n.startswith("assets/")]
            files = {f"{PAGES}/{n}": archive.read(n) for n in names if n.endswith(LOADED)}
        licence = find_licence(written, "zensical", number)
        yield describe_bundled(f"pkg:pypi/zensical@{number}", "zensical", licence, files)


def describe_root(wheel: Wheel) -> dict[str, Any]:
    """Return the wheel itself as a component."""
    purl = f"pkg:pypi/ullage@{wheel.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": "ullage",
        "version": wheel.version,
        "hashes": describe_hashes(hashlib.sha256(wheel.path.read_bytes()).hexdigest()),
        "licenses": describe_licence(wheel.licence),
        "purl": purl,
    }


def describe(path: Path) -> dict[str, Any]:
    """Return the bill of materials of a wheel. Raises LookupError if a lock lacks a package."""
    wheel, written = read_wheel(path), read_table()
    direct = frozenset[str]().union(*wheel.named.values())
    packages = read_product(direct)
    edges = find_edges(packages)
    brought = {extra: reach(names, edges) for extra, names in wheel.named.items()}
    reached = sorted(set[str]().union(*brought.values()))
    components = [
        describe_package(
            packages[name],
            [extra for extra, names in brought.items() if name in names],
            find_licence(written, name, packages[name].version),
        )
        for name in reached
    ]
    refs = {name: each["bom-ref"] for name, each in zip(reached, components, strict=True)}
    root, bundled = describe_root(wheel), [*list_bundled(wheel, written)]
    inside = [each["bom-ref"] for each in bundled]
    depends = {root["bom-ref"]: sorted([*(refs[name] for name in direct), *inside])}
    depends |= {refs[name]: [refs[other] for other in edges[name]] for name in reached}
    depends |= {ref: [] for ref in inside}
    whole = read_lock(FOLDER / "product.txt")
    apart = [refs[name] for name in reached if name not in whole]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, root["hashes"][0]["content"]).urn,
        "version": 1,
        "metadata": {
            "timestamp": wheel.made,
            "lifecycles": [{"phase": "build"}],
            "component": root,
        },
        "components": [*components, *bundled],
        "dependencies": [{"ref": ref, "dependsOn": on} for ref, on in depends.items()],
        "compositions": [{"aggregate": "incomplete", "dependencies": apart}],
    }


def write_bill(path: Path) -> str:
    """Return the bill of a wheel as text. Raises ValueError if it is not valid CycloneDX 1.6."""
    text = json.dumps(describe(path), indent=2) + "\n"
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError:  # only the release environment has it
        return text
    if (fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        raise ValueError(f"the bill of materials is not valid: {fault}")
    return text


if __name__ == "__main__":
    print(write_bill(Path(sys.argv[1])), end="")
