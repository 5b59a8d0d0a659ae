"""`ullage recall`: the text to the byte on stdout, everything else on stderr."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.cli.main import main
from ullage.storage import open_store

TEXT = "first line\r\n\U0001f511 and the rest"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a store that holds a text."""
    url = f"sqlite:{tmp_path / 'store.db'}"
    store = open_store(url)
    store.originals.keep({"u:1": TEXT, "u:odd": "half \ud800 a pair"})
    store.close()
    return url


def test_the_text_is_printed_as_it_was(url: str, capfdbinary: pytest.CaptureFixture[bytes]):
    assert main(["recall", "u:1", "--store", url]) == 0
    out, err = capfdbinary.readouterr()
    assert out == TEXT.encode()
    assert err == b""


def test_a_page_says_how_to_go_on(url: str, capfd: pytest.CaptureFixture[str]):
    assert main(["recall", "u:1", "--store", url, "--offset", "6", "--limit", "4"]) == 0
    out, err = capfd.readouterr()
    assert out == "line"
    assert "10 of 26 characters; the rest with --offset 10" in err


def test_half_a_pair_is_written_out(url: str, capfd: pytest.CaptureFixture[str]):
    assert main(["recall", "u:odd", "--store", url]) == 0
    assert capfd.readouterr().out == "half \\ud800 a pair"


def test_the_setting_names_the_store(
    url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    settings = tmp_path / "config.toml"
    settings.write_text(f"store = '{url}'\n")
    monkeypatch.setenv("ULLAGE_CONFIG", str(settings))
    assert main(["recall", "u:1", "--limit", "5"]) == 0
    assert capfd.readouterr().out == "first"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["u:1"], "no store is named: give --store"),
        (["u:2", "--store", "memory:"], "memory: holds no text for 'u:2'"),
        (["u:1", "--store", "redis:"], "give memory:"),
        (["u:1", "--store", "sqlite:missing.db"], "there is no store at"),
        (["u:1", "--store", "memory:", "--offset", "-1"], "offset is a number"),
    ],
)
def test_what_cannot_be_recalled_is_an_error(
    arguments: list[str],
    said: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    monkeypatch.chdir(tmp_path)
    assert main(["recall", *arguments]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert not list(tmp_path.iterdir())
