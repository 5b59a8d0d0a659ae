"""`ullage window`: who set a window: the name of a file, a variable, an option, or the mark."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
from pathlib import Path

import pytest

from tests.support.faults import FaultServer, of_json
from ullage.api.functions import awindow, window
from ullage.cli.main import main
from ullage.config.settings import Settings
from ullage.runtime import Runtime
from ullage.windows import table

FILE = "[context_windows]\nother = 100\ngpt-5 = 9000\n"
MARKED = "claude-sonnet-4-5[1m]"


@pytest.mark.parametrize("where", ["file", "variable", "option"])
def test_a_window_of_the_settings_names_where_it_was_set(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")  # a long path is cut in a narrow terminal
    path = tmp_path / "ullage.toml"
    said, more = f"{path}, line 3", []
    if where == "file":
        path.write_text(FILE)
    elif where == "variable":
        said = "$ULLAGE_CONTEXT_WINDOWS"
        monkeypatch.setenv("ULLAGE_CONTEXT_WINDOWS", '{"gpt-5": 9000}')
    else:
        said = "--set context_windows.gpt-5"
        more = ["--set", "context_windows.gpt-5=9000"]
    (tmp_path / "m.json").write_text(json.dumps([{"role": "user", "content": "How full?"}]))
    assert main(["window", "gpt-5", "--explain", *more]) == 0
    assert f"* 9,000 tokens, total, set by {said}\n" in capsys.readouterr().out
    assert main(["context", "m.json", "--model", "gpt-5", *more]) == 0
    assert f"total window set by {said} " in " ".join(capsys.readouterr().out.split())


def test_a_window_of_settings_in_code_is_called_so() -> None:
    settings = Settings(context_windows={"m": 900})
    found = window("m", runtime=Runtime(settings=settings))
    assert found.name_source() == "total window set by context_windows in the settings"
    told = Settings(context_windows={"m": 900}, window_places={"m": "a file"})
    again = pickle.loads(pickle.dumps(told))
    assert (again, again.window_places) == (settings, {"m": "a file"})


def test_the_mark_of_a_wide_window_is_understood_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "total window set by [1m] in the model's name"
    assert main(["window", MARKED]) == 0
    assert capsys.readouterr().out == f"1,000,000 tokens of input ({said})\n"
    assert main(["context", "--demo", "--model", MARKED]) == 0
    assert f"{said}\n" in capsys.readouterr().out
    found = asyncio.run(awindow(MARKED))
    assert (found.model, found.input_tokens) == ("claude-sonnet-4-5", 1_000_000)
    assert window(MARKED, override=9_000).input_tokens == 9_000


def test_a_model_that_the_table_knows_is_not_proposed_for_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with FaultServer({"*": of_json({"detail": "Not Found"}, 404)}) as server:
        assert main(["window", "gpt-5", "--base-url", server.base_url]) == 0
        out = capsys.readouterr().out
        assert "unknown" in out
        assert "did you mean" not in out
        assert main(["window", "gtp-5", "--base-url", server.base_url]) == 0
        assert "did you mean 'gpt-5'?" in capsys.readouterr().out


@pytest.mark.parametrize("form", [(), ("--explain",), ("--json",)])
def test_a_server_that_is_not_there_is_told_of_once(
    form: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{find_port()}/v1"
    assert main(["window", "m", "--base-url", url, *form]) == 0  # unknown is an answer, too
    out, err = capsys.readouterr()
    assert ((out + err).count("gave no answer"), err) == (1, "")


def test_what_is_no_part_of_the_answer_is_told_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ULLAGE_CACHE_DIR", str(tmp_path))
    (tmp_path / table.FILE).write_bytes(b"no table")
    assert main(["window", "gpt-5"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("272,000 tokens of input")
    assert str(tmp_path / table.FILE) in err


def find_port() -> int:
    """Return a port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port
