"""The bill of materials is of the product: what the wheel requires, and what is bundled in it."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tools import dist, licences, locks, sbom
from tools.dependencies import read_licence, read_requirements

BUILDERS = {"hatchling", "pathspec", "pluggy", "pytest", "ruff", "tomlkit", "trove-classifiers"}
BROUGHT = {
    *("backports-zstd", "cryptography", "mcp", "obstore", "opentelemetry-api", "procrastinate"),
    *("psycopg", "psycopg-binary", "pydantic", "pyjwt", "python-multipart", "sse-starlette"),
    *("huggingface-hub", "mistral-common", "pyarrow", "sqlalchemy", "wordllama"),
}
"""Some of what extras bring, by themselves or by what they require."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel; where the pages were not built, it has small ones."""
    _, built = dist.build(dist.ROOT, tmp_path_factory.mktemp("bill"), dist.TWICE[0])
    with zipfile.ZipFile(built, "a") as archive:
        if sbom.PAGES not in archive.namelist():
            pages = io.BytesIO()
            with zipfile.ZipFile(pages, "w") as inner:
                inner.writestr("assets/javascripts/bundle.js", "go()")
                inner.writestr("index.html", "<p>first</p>")
            archive.writestr(sbom.PAGES, pages.getvalue())
    return built


@pytest.fixture(scope="module")
def bill(wheel: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(sbom.write_bill(wheel))
    return told


@pytest.fixture(scope="module")
def packages(bill: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the components that are no bundled files, by name."""
    return {each["name"]: each for each in bill["components"] if "components" not in each}


@pytest.fixture(scope="module")
def edges(bill: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names that each name depends on."""
    named = {each["bom-ref"]: each["name"] for each in bill["components"]}
    named[bill["metadata"]["component"]["bom-ref"]] = "ullage"
    return {named[e["ref"]]: {named[on] for on in e["dependsOn"]} for e in bill["dependencies"]}


def list_stated(packages: dict[str, dict[str, Any]]) -> Iterator[tuple[str, list[Requirement]]]:
    """Yield what packages require, as far as the version of the bill is installed here."""
    for name, each in packages.items():
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        if found.version == each["version"]:
            yield name, [Requirement(line) for line in found.requires or []]


def read_named(wheel: Path) -> dict[str, set[str]]:
    """Return the extras of the packages that the wheel's metadata names, by name."""
    named: dict[str, set[str]] = {}
    with zipfile.ZipFile(wheel) as archive:
        head = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = re.findall(r"(?m)^Requires-Dist: (.+)$", archive.read(head).decode())
    for one in map(Requirement, lines):
        if one.name != "ullage" and "'dev'" not in str(one.marker).replace('"', "'"):
            named.setdefault(locks.normalize(one.name), set()).update(one.extras)
    return named


def applies(one: Requirement, extras: set[str]) -> bool:
    """Return whether a requirement counts here, with some extras."""
    return one.marker is None or any(one.marker.evaluate({"extra": e}) for e in {"", *extras})


def test_everything_that_the_wheel_requires_is_in_the_bill_with_what_that_requires(
    wheel: Path, packages: dict[str, dict[str, Any]], edges: dict[str, set[str]]
) -> None:
    named = read_named(wheel)
    assert {*named} | BROUGHT <= {*packages}
    assert {*named} <= edges["ullage"]
    frameworks = {*named} - {*locks.read_lock(locks.FOLDER / "product.txt")}
    checked = 0
    for name, stated in list_stated(packages):
        wanted = {locks.normalize(s.name) for s in stated if applies(s, named.get(name, set()))}
        if name not in frameworks:
            assert wanted <= edges[name], name
            assert edges[name] <= {locks.normalize(one.name) for one in stated}, name
            checked += 1
    assert checked > 70


def test_no_tool_of_the_build_or_of_the_tests_is_in_the_bill(
    packages: dict[str, dict[str, Any]],
) -> None:
    assert BUILDERS & {*packages} == set()


def test_each_package_has_a_version_hashes_a_licence_and_who_brings_it(
    bill: dict[str, Any], packages: dict[str, dict[str, Any]]
) -> None:
    for name, each in packages.items():
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{name}@{each['version']}"
        assert all(re.fullmatch(r"[0-9a-f]{64}", one["content"]) for one in each["hashes"]), name
        assert each["hashes"], name
        (licence,) = each["licenses"]
        assert licence.get("expression") or licence["license"]["name"], name
        told = [one["value"] for one in each.get("properties", ()) if one["name"] == "ullage:extra"]
        assert bool(told) == (each["scope"] == "optional"), name
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(refs) == len(set(refs))


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("sse-starlette", {"all", "mcp"}),
        ("psycopg-binary", {"all", "postgres", "workers", "workers-dbos"}),
        ("crewai", {"crewai"}),
        ("uvloop", {"all", "proxy"}),
    ],
)
def test_a_package_names_the_extras_that_bring_it(
    packages: dict[str, dict[str, Any]], name: str, extras: set[str]
) -> None:
    told = packages[name]["properties"]
    assert {one["value"] for one in told if one["name"] == "ullage:extra"} == extras


def test_the_core_is_required_and_the_extras_are_not(packages: dict[str, dict[str, Any]]) -> None:
    assert packages["msgspec"]["scope"] == packages["h11"]["scope"] == "required"
    assert packages["textual"]["scope"] == "optional"
    markers = {one["name"]: one["value"] for one in packages["xllamacpp"]["properties"]}
    assert markers["ullage:marker"] == "sys_platform == 'linux'"


def test_every_component_is_reached_from_the_wheel_and_edges_are_not_empty(
    bill: dict[str, Any], edges: dict[str, set[str]]
) -> None:
    assert sbom.reach(["ullage"], edges) == {*edges}
    assert {each["name"] for each in bill["components"]} | {"ullage"} == {*edges}
    assert len([on for on in edges.values() if on]) > 30
    assert edges["aiohttp"] >= {"multidict", "yarl", "frozenlist"}
    (partial,) = bill["compositions"]
    assert partial["aggregate"] == "incomplete"
    assert "pkg:pypi/crewai@" in " ".join(partial["dependencies"])
    assert "pkg:pypi/mcp@" not in " ".join(partial["dependencies"])


def test_bundled_files_are_in_the_bill_with_their_true_hashes(
    wheel: Path, bill: dict[str, Any]
) -> None:
    bundled = {each["name"]: each for each in bill["components"] if "components" in each}
    with zipfile.ZipFile(wheel) as archive:
        pages = zipfile.ZipFile(io.BytesIO(archive.read(sbom.PAGES)))
        for each in bundled.values():
            for file in each["components"]:
                inner = file["name"].removeprefix(f"{sbom.PAGES}/")
                inside = inner != file["name"]
                data = pages.read(inner) if inside else archive.read(file["name"])
                assert file["hashes"] == [
                    {"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}
                ]
    assert {name: one["licenses"][0]["expression"] for name, one in bundled.items()} == {
        "htmx.org": "0BSD",
        "uplot": "MIT",
        "zensical": "MIT",
    }
    assert {Path(file["name"]).name for file in bundled["uplot"]["components"]} == {
        "uPlot.iife.min.js",
        "uPlot.min.css",
    }
    assert all(Path(f["name"]).suffix == ".js" for f in bundled["htmx.org"]["components"])
    assert bundled["zensical"]["components"]


def test_the_bill_is_cyclonedx_and_names_the_wheel(wheel: Path, bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bill["metadata"]["timestamp"])
    root = bill["metadata"]["component"]
    assert root["hashes"][0]["content"] == dist.hash_file(wheel)
    assert root["licenses"] == [{"expression": "Apache-2.0", "acknowledgement": "declared"}]


def test_the_same_wheel_has_the_same_bill(wheel: Path) -> None:
    assert sbom.write_bill(wheel) == sbom.write_bill(wheel)


def test_the_table_of_licences_has_each_package_as_it_states_itself() -> None:
    assert licences.list_faults() == []
    written = licences.read_table()
    found = {each.pin: licences.find_installed(each) for each in licences.list_packages().values()}
    told = {pin: licence for pin, licence in found.items() if licence}
    assert len(told) > 70
    assert {pin: written[pin] for pin in told} == told
    assert read_licence("tiktoken") == "MIT License"


def test_a_package_without_lock_or_licence_is_told() -> None:
    with pytest.raises(LookupError, match=r"nothing-at-all is in no lock: run `make lock`"):
        locks.read_product([*read_requirements(), "nothing-at-all"])
    with pytest.raises(LookupError, match=r"a-b==1 has no licence in licences\.toml"):
        licences.find_licence({"a-b==1": licences.MISSING}, "A.b", "1")


def test_a_licence_in_other_words_keeps_them() -> None:
    assert sbom.describe_licence("any kind") == [
        {"license": {"name": "any kind", "acknowledgement": "declared"}}
    ]
    assert sbom.describe_licence("Apache 2.0")[0]["expression"] == "Apache-2.0"
