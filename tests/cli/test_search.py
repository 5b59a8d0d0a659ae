"""`ullage search`: what was said and left out, found by words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ullage
from ullage.cli.main import main
from ullage.core.session.log.event import Draft


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a database with an original and two sessions."""
    url = f"sqlite:{tmp_path / 'store.db'}"
    store = ullage.open_store(url)
    store.originals.keep({"u:0123456789abcdef": "the valve of the pump is left open"})
    store.close()
    log = ullage.open_log(url)
    for name in ("a", "b"):
        with ullage.Session.create(log, name) as session:
            session.record([Draft("user_message", {"text": f"valve {name} sticks"})])
    log.close()
    return url


def test_hits_are_printed_with_what_they_are_recalled_by(
    url: str, capfd: pytest.CaptureFixture[str]
):
    assert main(["search", "pump", "valve", "--store", url]) == 0
    out = capfd.readouterr().out
    assert out.startswith("u:0123456789abcdef from character 0\nthe valve of the pump")
    assert "in session b\nvalve b sticks" in out


def test_one_session_as_json(url: str, capfd: pytest.CaptureFixture[str]):
    assert main(["search", "valve", "--store", url, "--session", "b", "--json"]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["session"], found["text"]) == ("b", "valve b sticks")
    assert main(["recall", found["reference"], "--store", url]) == 0
    assert capfd.readouterr().out == "valve b sticks"


def test_nothing_found_is_no_error_text(url: str, capfd: pytest.CaptureFixture[str]):
    assert main(["search", "zymurgy", "--store", url]) == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["valve"], "no store is named: give --store"),
        (["?", "--store", "memory:"], "no words to look for"),
        (["valve", "--store", "memory:", "--hits", "0"], "hits is a number from 1"),
        (["valve", "--store", "sqlite:missing.db"], "there is no store at"),
    ],
)
def test_what_cannot_be_searched_is_an_error(
    arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]
):
    assert main(["search", *arguments]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
