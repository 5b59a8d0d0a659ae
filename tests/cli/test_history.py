"""`ullage validate`, `compact`, `explain-error`: exit codes, what is printed and written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from ullage.cli.explain_error import ADVICE
from ullage.cli.main import main
from ullage.core.compaction import laws
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.errors import Kind

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def history(turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Mend the cellar."},
    ]
    for number in range(turns):
        call = {**CALL, "id": f"c{number}"}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "barrel " * 200},
        ]
    return [*messages, {"role": "user", "content": "And now?"}]


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"model": "gpt-4o", "messages": history(30)}))
    return path


def test_validate_says_what_it_checked(request_file, capsys) -> None:
    assert main(["validate", str(request_file)]) == 0
    assert "63 messages of openai_chat keep the protocol and fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--window", "4000"], "compact before sending"),
        (["--window", "8000", "--max-tokens", "2000"], "lower max_tokens"),
        (["--window", "0"], "must be a positive number"),
        (["--max-tokens", "0"], "must be a positive number"),
    ],
)
def test_validate_fails_where_it_does_not_fit(request_file, capsys, options, words) -> None:
    assert main(["validate", str(request_file), *options]) == 1
    assert words in capsys.readouterr().err


def test_validate_names_a_broken_protocol(tmp_path, capsys) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps([*history(1)[:-2], {"role": "user", "content": "?"}]))
    assert main(["validate", str(path)]) == 1
    assert "messages[2]" in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(request_file, capsys) -> None:
    assert main(["compact", str(request_file), "--target", "3000", "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert "tokens would go to" in captured.out
    assert "clear" in captured.out
    assert captured.err == ""


def test_compact_prints_lawful_messages(request_file, capsys) -> None:
    assert main(["compact", str(request_file), "--target", "3000"]) == 0
    captured = capsys.readouterr()
    messages = json.loads(captured.out)["messages"]
    assert "tokens went to" in captured.err
    assert not laws.protocol(OpenAIChat().read(messages))
    assert (messages[0], messages[-1]) == (history(0)[0], history(0)[-1])


def test_compact_takes_a_share_of_the_window_and_writes_a_file(request_file, tmp_path, capsys):
    out = tmp_path / "small.json"
    options = ["--window", "8000", "--ratio", "0.5", "--out", str(out)]
    assert main(["compact", str(request_file), *options]) == 0
    assert capsys.readouterr().out == ""
    assert main(["compact", str(request_file), "--window", "8000", "--dry-run"]) == 0
    assert json.loads(out.read_text())["messages"][-1]["content"] == "And now?"


def test_a_missed_target_and_nothing_to_do_are_told(request_file, tmp_path, capsys) -> None:
    assert main(["compact", str(request_file), "--target", "20", "--dry-run"]) == 1
    assert "missed: cannot_compact" in capsys.readouterr().out
    assert main(["compact", str(request_file), "--target", "90000", "--dry-run"]) == 0
    said = r"nothing changed: the conversation is already below the target of 90,000 tokens: "
    assert re.search(said + r"(at most )?[1-9][\d,]+ tokens\n", capsys.readouterr().out)


def test_a_place_that_cannot_be_written_is_named(request_file, tmp_path, capsys) -> None:
    out = str(tmp_path / "missing" / "small.json")
    assert main(["compact", str(request_file), "--target", "3000", "--out", out]) == 1
    assert "cannot be written" in capsys.readouterr().err


BODY = '{"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}'


def test_explain_error_reads_words_and_files(tmp_path, capsys) -> None:
    path = tmp_path / "error.json"
    path.write_text(BODY)
    for body in (BODY, str(path)):
        assert main(["explain-error", body, "--status", "400"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("input (certain) · limit 200,000 tokens · sent 210,000 tokens\n")
        assert "Compact it" in said


@pytest.mark.parametrize(
    ("words", "source"),
    [
        (["x" * 5_000], "the words given"),
        (["Internal server error", "--status", "500"], "the words given"),
        (["no-such-file.json"], "there is no file of that name"),
        (["{}"], "the words given"),
    ],
)
def test_an_error_that_nobody_knows_is_said_to_be_unknown(words, source, capsys) -> None:
    assert main(["explain-error", *words]) == 1
    said = capsys.readouterr().out
    assert said.startswith("unknown error: No wording that ullage knows is in it")
    assert source in said
    assert main(["explain-error", *words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["kind"] == "other"


def test_explain_error_prints_json(capsys) -> None:
    assert main(["explain-error", BODY, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "input"
    assert (found["limit"], found["input_tokens"]) == (200_000, 210_000)


def test_every_kind_of_error_has_its_advice() -> None:
    assert set(ADVICE) == set(get_args(Kind))
