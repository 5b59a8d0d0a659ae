"""The commands as a user calls them: arguments in, stdout, stderr and an exit code out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ullage.cli.main import main
from ullage.embedded import Server

HISTORY = [{"role": "user", "content": "How much is left in the cask?"}]


def test_window_says_who_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["window", "gpt-5"]) == 0
    assert capsys.readouterr().out.startswith("272,000 tokens of input (input window by table")


def test_window_asks_the_server(tiny_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["window", "--base-url", tiny_server.base_url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["input_tokens"], found["kind"], found["known"]) == (2048, "allocated", True)


def test_window_explains_what_lost(tiny_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["window", "--base-url", tiny_server.base_url, "--explain"]) == 0
    assert "131,072 tokens, trained" in capsys.readouterr().out


def test_an_unknown_window_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["window", "no-such-model"]) == 0
    assert "context_window_unknown" in capsys.readouterr().out


def test_a_bad_override_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["window", "gpt-5", "--window", "-3"]) == 1
    assert "must be a positive number of tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(HISTORY),
        json.dumps({"model": "x", "messages": HISTORY, "tools": []}),
        "\n".join(json.dumps(m) for m in [*HISTORY, *HISTORY[:0]]) + "\n\n",
    ],
    ids=["list", "request", "lines"],
)
def test_count_reads_lists_requests_and_lines(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.json"
    path.write_text(text if not text.startswith('{"role"') else text * 2)
    assert main(["count", str(path), "--model", "gpt-4o"]) == 0
    assert "(exact)" in capsys.readouterr().out


def test_count_reads_stdin_and_prints_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(HISTORY)))
    assert main(["count", "-", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["basis"] == "estimate"
    assert found["low"] < found["tokens"] < found["high"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("12", "holds a JSON int"), ('{"a": 1}', "holds a JSON dict"), ("{}\nnope", "line 2 is not")],
)
def test_count_names_what_is_wrong_with_a_file(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    assert main(["count", str(path)]) == 1
    assert said in capsys.readouterr().err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "no-such-file.json"]) == 1
    assert "no-such-file.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["brew"], ["demo", "--loud"]])
def test_wrong_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    assert "usage: ullage" in capsys.readouterr().err


def test_an_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ullage.cli.window.window", interrupt)
    assert main(["window", "gpt-5"]) == 130
    assert "interrupted" in capsys.readouterr().err
