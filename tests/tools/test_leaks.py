"""The text gate finds the places and hosts of the machine that wrote, and locks without hashes.

The forbidden words are put together here, so that this file passes the gate that it tests.
"""

from __future__ import annotations

import pytest

from tools import leaks

HASH = "--hash=sha256:" + "0" * 64


def rules(text: str, path: str = "README.md") -> list[tuple[str, int]]:
    return [(f.rule, f.line) for f in leaks.check(path, text)]


@pytest.mark.parametrize(
    "place", ["/" + "work/main/x", "see '/" + "root'", "a=/" + "tmp/lab/v/bin", "`/" + "work`"]
)
def test_a_place_on_this_machine_is_found(place):
    assert rules(f"one\n{place}\n") == [("local-path", 2)]


@pytest.mark.parametrize(
    "host", ["py" + "pi.org", "https://files.python" + "hosted.org/x", "registry.npm" + "js.org"]
)
def test_a_registry_host_is_found(host):
    assert rules(host) == [("registry-host", 1)]


@pytest.mark.parametrize(
    "text",
    [
        "src/work/main.py",
        "https://example.com/work/1",
        "homework/root/",
        "/workspace",
        "the work / root cause",
        "from PyPI",
    ],
)
def test_what_only_looks_like_a_leak_passes(text):
    assert rules(text) == []


def lock(text: str) -> list[tuple[str, int]]:
    return rules(text, "requirements/run.txt")


def test_a_pin_with_hashes_passes():
    text = f"# made by make lock\none==1.0 ; python_version < '4' \\\n    {HASH} \\\n    {HASH}\n"
    assert lock(text + "    # via two\n") == []


@pytest.mark.parametrize("entry", ["one==1.0", f"one>=1.0 {HASH}", "-e .", "-r other.txt"])
def test_a_pin_without_its_hash_is_found(entry):
    assert lock(f"two==2 {HASH}\n{entry}\n") == [("lock-hash", 2)]


@pytest.mark.parametrize(
    "entry",
    ["--index-url x", "-i x", "--find-links=here", f"one @ file:///one.whl {HASH}"],
)
def test_an_address_in_a_lock_is_found(entry):
    assert lock(f"two==2 \\\n    {HASH}\n{entry}\n") == [("lock-address", 3)]
