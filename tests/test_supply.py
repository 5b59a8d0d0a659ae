"""Packages: each has somebody to ask, a licence and a home; each lock has hashes."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

LOCKS = sorted((Path(__file__).parent.parent / "requirements").glob("*.txt"))
NAMED = re.compile(r"(?m)^([A-Za-z0-9._-]+)==[^\n]+")
WHO = ("author", "author_email", "maintainer", "maintainer_email")


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


@pytest.mark.skipif(sys.platform != "linux", reason="the lock is whole on Linux")
@pytest.mark.parametrize("name", entries(Path(LOCKS[0].parent, "run.txt")))
def test_what_the_product_needs_has_an_author_a_licence_and_a_home(name: str) -> None:
    try:
        told = metadata(name).json
    except PackageNotFoundError:
        pytest.skip("not for this platform")
    licences = [c for c in told.get("classifier", ()) if c.startswith("License ::")]
    assert any(told.get(field) for field in WHO)
    assert told.get("license_expression") or told.get("license") or licences
    assert told.get("home_page") or told.get("project_url")
