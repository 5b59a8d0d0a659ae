"""The commands as a user calls them: arguments in, stdout, stderr and an exit code out."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.support.faults import FaultServer, Script, of_json
from ullage import importers
from ullage.cli import window
from ullage.cli.main import main
from ullage.cli.output import end_output
from ullage.embedded import Server

HISTORY = [{"role": "user", "content": "How much is left in the cask?"}]


def test_the_command_can_be_run_as_a_module() -> None:
    words = [sys.executable, "-m", "ullage", "window", "gpt-5", "--window", "-3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "must be a positive number of tokens" in done.stderr


def test_an_error_is_one_document_where_one_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["window", "gpt-5", "--window", "-3", "--json"]) == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["outcome"], told["reason"]) == ("error", "configuration")
    assert err == f"ullage: {told['error']}\n"


def test_window_says_who_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["window", "gpt-5"]) == 0
    assert capsys.readouterr().out.startswith(
        "272,000 tokens of input (input window from the bundled table"
    )


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
    feed(monkeypatch, json.dumps(HISTORY).encode())
    assert main(["count", "-", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["basis"] == "estimate"
    assert found["low"] < found["tokens"] < found["high"]


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Put bytes on standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def counted(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["count", *argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_count_takes_model_tools_and_system_of_a_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}
    body = {"model": "claude-sonnet-4-5", "system": "Be brief.", "messages": HISTORY}
    path = tmp_path / "request.json"
    path.write_text(json.dumps({**body, "tools": [tool]}))
    wanted = ullage.count(HISTORY, model="claude-sonnet-4-5", system="Be brief.", tools=[tool])
    assert counted(capsys, str(path))["tokens"] == wanted.tokens
    path.write_text(json.dumps({**body, "tools": [tool], "model": "claude-sonnet-4-5[1m]"}))
    found = counted(capsys, str(path))
    assert (found["tokens"], found["high"]) == (wanted.tokens, wanted.high)


def test_count_reads_sessions_as_they_stand_now(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", str(importers.SAMPLE)]) == 0
    read = importers.load(importers.SAMPLE)
    standing = len(read.messages) - read.start
    assert capsys.readouterr().out.endswith(f"in {standing} messages\n")
    assert main(["count", str(importers.SAMPLE), "--from", "codex"]) == 1
    assert "ullage: " in capsys.readouterr().err


def test_count_says_one_message_and_an_exact_number_without_a_band(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(HISTORY))
    assert main(["count", str(path), "--model", "gpt-4o"]) == 0
    assert re.fullmatch(r"\d+ tokens \(exact\) in 1 message\n", capsys.readouterr().out)
    assert main(["count", str(path), "--model", "nobodys"]) == 0
    assert re.search(r"\(estimate, \d+ to \d+\) in 1 message", capsys.readouterr().out)


def test_count_of_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.txt"
    path.write_text("how much is left", "utf-8")
    assert main(["count", str(path), "--text", "--model", "gpt-4o"]) == 0
    assert capsys.readouterr().out == "4 tokens (exact) in 16 characters of plain text\n"
    feed(monkeypatch, b"how much is left")
    assert counted(capsys, "-", "--text")["basis"] == "estimate"


@pytest.mark.parametrize(
    ("data", "more", "said"),
    [
        (b"\xff\xfe", [], "cannot be read as text"),
        (b"text", ["--base-url", "http://127.0.0.1:9/v1"], "--text counts offline"),
        (b"text", ["--from", "chat"], "--text counts offline"),
    ],
)
def test_text_that_is_none_is_an_error(
    data: bytes, more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    assert main(["count", str(path), "--text", *more]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "12", '{"a": 1}', "# Head\n\n[a](b) {c}\n", "[x] done\n"])
def test_what_holds_no_messages_is_counted_as_plain_text(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.md"
    path.write_text(text)
    assert main(["count", str(path), "--model", "gpt-4o"]) == 0
    assert f"in {len(text)} characters of plain text\n" in capsys.readouterr().out
    assert counted(capsys, str(path))["form"] == "text"


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("[]", []),
        ('{"messages": []}', []),
        (' {"request": {"model": "gpt-4o", "messages": [], "tools": [{"name": "tap"}]}}\n', [1]),
    ],
)
def test_an_empty_list_of_messages_is_counted_as_one(
    text: str, tools: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "request.json"
    path.write_text(text)
    told = counted(capsys, str(path), "--model", "gpt-4o")
    least = ullage.count([], model="gpt-4o").tokens
    assert told["form"] == "messages"
    assert (told["tokens"] > least) is bool(tools)
    assert told["tokens"] >= least
    assert main(["count", str(path)]) == 0
    assert "in 0 messages\n" in capsys.readouterr().out


@pytest.mark.parametrize("text", ['{"messages": null}', '{"body": {"messages": null}}'])
def test_messages_that_are_null_are_an_error(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "request.json"
    path.write_text(text)
    assert main(["count", str(path)]) == 1
    said = f"ullage: {path}: 'messages' is null: give a list of messages\n"
    assert capsys.readouterr().err == said


def test_count_tells_that_it_read_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    path.write_text(json.dumps(HISTORY))
    assert counted(capsys, str(path))["form"] == "messages"


BROKEN = """\
{
  "model": "gpt-4o",
  "messages": [
    {"role": "user", "content": "a"}
    {"role": "user", "content": "b"},
{"role": "user", "content": "c"}
  ]
}
"""


@pytest.mark.parametrize("command", ["count", "validate", "context", "compact"])
@pytest.mark.parametrize(
    ("text", "place", "under"),
    [
        (BROKEN, "line 5, column 5: Expecting ',' delimiter", '{"role": "user", "content": "b"},'),
        ('[{"role": "user"]', "line 1, column 17", "]"),
        ('[\n{"role":"user","content":"a"}\n', "line 3, column 1", ""),
        ('{"role": "user", "content": ' + "9" * 90 + "x}", "line 1, column 119", "x}"),
    ],
)
def test_broken_json_is_told_with_its_place(
    command: str,
    text: str,
    place: str,
    under: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "request.json"
    path.write_text(text)
    more = ["--target", "100"] if command == "compact" else []
    assert main([command, str(path), *more]) == 1
    err = capsys.readouterr().err
    assert f"{path}, {place}" in err
    above, mark = err.splitlines()[1:3]
    assert mark.strip() == "^"
    assert above[mark.index("^") :] == under


@pytest.mark.parametrize("command", ["count", "validate", "compact", "context"])
def test_a_number_too_long_to_be_read_is_an_error_in_one_sentence(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "request.json"
    path.write_text('[{"role": "user", "content": "x", "n": ' + "9" * 5000 + "}]")
    more = ["--target", "100"] if command == "compact" else []
    assert main([command, str(path), *more]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"ullage: {path}: its JSON has a number of more than 4,300 digits")


def test_a_broken_line_among_lines_is_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lines.jsonl"
    good = json.dumps(HISTORY[0])
    path.write_text(f'{good}\n{good}\n{{"role": "user" "content": 1}}\n{good}\n{{"role": "us')
    assert main(["count", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "in 3 messages" in out
    assert f"note: a line is left out: {path}, line 3, column 17: Expecting ',' delimiter" in err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "no-such-file.json"]) == 1
    assert "no-such-file.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["brew"], ["demo", "--loud"]])
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


# --- window: keys, providers, and what would change it --------------------------------------------

SENTINEL = "sk-sentinel-7f3a91"


def serving(*windows: int) -> dict[str, Script]:
    """Return a llama.cpp whose window is another one each time it is asked."""
    props = tuple(
        of_json({"default_generation_settings": {"n_ctx": n}, "total_slots": 1}) for n in windows
    )
    card = {"id": "m", "owned_by": "llamacpp"}
    return {"GET /v1/models": of_json({"data": [card]}), "GET /props": props}


def test_explain_tells_the_day_of_each_claim_and_what_would_change_it(
    tiny_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["window", "--base-url", tiny_server.base_url, "--explain"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\* 2,048 tokens, allocated, reported by http\S+, 20\d\d-\d\d-\d\d\n", out)
    assert re.search(r"- 131,072 tokens, trained, reported by http\S+, 20\d\d-\d\d-\d\d\n", out)
    assert "to change it:\n  starting the server" in out


def test_explain_shows_an_override_with_what_lost_to_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["window", "gpt-5", "--window", "9000", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "* 9,000 tokens, total, set by --window or window=\n" in out
    assert "- 272,000 tokens, input, from the bundled table" in out
    assert "taking the number out" in out


def test_explain_of_an_unknown_window_says_what_would_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["window", "no-such-model", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "context_window_unknown" in out
    assert "to change it:\n  --window N" in out


def test_json_says_that_it_is_unknown_and_what_would_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["window", "no-such-model", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["known"], found["input_tokens"], found["source"]) == (False, None, None)
    assert found["claims"] == []
    assert "--window N" in found["hint"]
    assert found["changes"]


def test_an_override_over_the_allocated_window_is_capped_and_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with FaultServer(serving(2048)) as server:
        asked = ["window", "m", "--base-url", server.base_url, "--json"]
        assert main(asked) == 0
        capsys.readouterr()
        assert main([*asked, "--window", "9000"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["input_tokens"] == 2048
    assert "capped at 2,048" in found["warnings"][0]


def test_refresh_asks_again(capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(serving(2048, 4096)) as server:
        for more, tokens in ([], "2,048"), ([], "2,048"), (["--refresh"], "4,096"):
            assert main(["window", "m", "--base-url", server.base_url, *more]) == 0
            assert capsys.readouterr().out.startswith(f"{tokens} tokens of input")


def test_the_key_of_the_named_variable_is_sent_and_never_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", SENTINEL)
    with FaultServer(serving(2048)) as server:
        for more in ([], ["--json"], ["--explain"]):
            asked = ["window", "--base-url", server.base_url, "--api-key-env", "MY_KEY", *more]
            assert main(asked) == 0
            out, err = capsys.readouterr()
            assert SENTINEL not in out + err
        assert server.requests[0].headers["authorization"] == f"Bearer {SENTINEL}"


def test_a_key_given_for_a_name_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["window", "m", "--api-key-env", SENTINEL]) == 1
    out, err = capsys.readouterr()
    assert "names no environment variable that is set" in err
    assert SENTINEL not in out + err


def test_a_key_of_the_environment_is_not_sent_to_a_server_that_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SENTINEL)
    with FaultServer({**serving(2048), "*": of_json({}, 404)}) as server:
        for more in ([], ["--provider", "openai"], ["--provider", "openrouter"]):
            assert main(["window", "m", "--base-url", server.base_url, *more]) == 0
        assert server.requests
        assert all("authorization" not in r.headers for r in server.requests)
    out, err = capsys.readouterr()
    assert SENTINEL not in out + err


@pytest.mark.parametrize(
    ("base_url", "provider", "key"),
    [
        (None, "groq", "g"),
        (None, "gemini", "second"),
        ("https://api.groq.com/openai/v1", None, "g"),
        ("https://api.groq.com/openai/v1", "groq", "g"),
        ("https://api.groq.com/openai/v1", "gemini", None),
        ("http://api.groq.com/openai/v1", None, None),
        ("https://api.groq.com.example/v1", "groq", None),
        ("http://[::1", "groq", None),
        (None, "codex", None),
        (None, None, None),
    ],
)
def test_a_providers_key_goes_to_its_own_host_only(
    base_url: str | None, provider: str | None, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "g")
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setenv("GOOGLE_API_KEY", "second")
    assert window.read_key(None, base_url, provider) == key


def test_a_provider_is_taken_by_its_listings_or_its_tables_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["window", "gpt-5", "--provider", "openai"]) == 0
    assert capsys.readouterr().out.startswith("272,000")
    assert window._provider("github_copilot") == "copilot"


@pytest.mark.parametrize(("name", "said"), [("opnai", "did you mean 'openai'"), ("?", "known are")])
def test_a_provider_that_is_none_is_refused(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["window", "gpt-5", "--provider", name]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "provider", "taken"),
    [
        ("http://h:1/v1", None, True),
        ("http://h:1/v1", "litellm", True),
        ("http://h:1/v1", "groq", False),
        ("https://api.groq.com/openai/v1", "groq", True),
        (None, "groq", True),
    ],
)
def test_the_configured_server_is_left_out_for_a_provider_that_lives_elsewhere(
    url: str | None, provider: str | None, taken: bool
) -> None:
    assert window._find_base_url(url, provider) == (url if taken else None)


@pytest.mark.parametrize(
    ("more", "tokens"),
    [
        ([], 2048),
        (["--provider", "litellm"], None),
        (["--provider", "openai"], None),
        (["--base-url", "https://api.openai.com/v1"], None),
    ],
)
def test_the_configured_server_is_asked_unless_another_is_named(
    more: list[str], tokens: int | None
) -> None:
    """In a process of its own: the default runtime reads its settings once."""
    with FaultServer({**serving(2048), "*": of_json({}, 404)}) as server:
        done = subprocess.run(
            [sys.executable, "-m", "ullage.cli.main", "window", "m", "--json", *more],
            env={**os.environ, "ULLAGE_BASE_URL": server.base_url},
            capture_output=True,
            check=True,
            text=True,
        )
        asked = bool(server.requests)
    assert json.loads(done.stdout)["input_tokens"] == tokens
    assert asked == (more in ([], ["--provider", "litellm"]))


@pytest.mark.parametrize(
    "command", ["count", "validate", "context", "explain-error", "import", "doctor --watch --log"]
)
def test_a_closed_standard_input_is_an_error_in_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main([*command.split(), "-"]) == 1
    said = "ullage: standard input is closed: pipe something in, or name a file\n"
    assert capsys.readouterr().err == said


def test_a_standard_input_that_cannot_be_read_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "out").open("w") as out, open(out.fileno(), closefd=False) as unread:
        monkeypatch.setattr(sys, "stdin", unread)
        assert main(["count", "-"]) == 1
    assert "ullage: standard input cannot be read: Bad file desc" in capsys.readouterr().err


def test_an_error_that_is_not_of_the_output_is_raised() -> None:
    with pytest.raises(FileNotFoundError):
        end_output(FileNotFoundError(2, "No such file or directory"))


@pytest.mark.parametrize("command", ["count", "context", "validate", "compact", "verify", "import"])
@pytest.mark.parametrize("name", [".", "..", "cask " * 60])
def test_what_cannot_be_a_file_is_answered_in_one_sentence(
    command: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    store = [] if command in ("count", "validate") else ["--store", "sqlite:none.db"]
    assert main([command, name, *store]) in (1, 2)
    told = capsys.readouterr().err
    assert told.startswith("ullage: ")
    assert "[Errno" not in told


def test_an_address_that_lists_no_models_is_told_what_it_may_lack(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with FaultServer({"*": of_json({"detail": "Not Found"}, 404)}) as server:
        words = ["run", "hello", "--store", "memory:", "--base-url", server.base_url]
        assert main(words) == 1
        assert "answered 404" in capsys.readouterr().err
    assert main([*words, "--timeout", "-1"]) == 1
    assert "--timeout is a number over 0, not -1" in capsys.readouterr().err
