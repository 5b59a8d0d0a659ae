"""Sessions in lists, ullage's own sessions, and what its proxy keeps, through the command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.importers.writing import assistant, call, item, lines, result, rollout, user
from tests.support.faults import FaultServer, closed_port, of_json
from ullage.cli.main import main
from ullage.core.compaction.policy import Policy
from ullage.core.session.log.event import Draft
from ullage.embedded import Launch, Server, catalog
from ullage.runtime import Runtime

Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*argv: str) -> str:
        assert main(["context", *argv]) == 0
        return capsys.readouterr().out

    return run


# --- lists ----------------------------------------------------------------------------------------


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    folder = tmp_path / "claude" / "projects" / "-srv-app"
    folder.mkdir(parents=True)
    return folder


def write(path: Path, day: int, *values: Any) -> None:
    path.write_bytes(lines(*values))
    os.utime(path, (1_770_000_000 + day * 86_400,) * 2)


def test_sessions_are_listed_with_date_project_and_title_the_newest_first(
    claude: Path, said: Said
) -> None:
    meta = user("m", None, "<command-name>/clear</command-name>", cwd="/srv/app", isMeta=True)
    aside = user("x", None, "what the subagent was told", isSidechain=True)
    asked = user("u", "m", [{"type": "text", "text": "Fix the totals\n of the ledger"}])
    title = {"type": "summary", "summary": "Rounding in the ledger", "leafUuid": "u"}
    write(claude / "one.jsonl", 1, meta, aside, asked)
    write(claude / "two.jsonl", 2, user("u", None, "go", cwd="/srv/two"), title)
    write(claude / "bad.jsonl", 3)
    assert [row.split("  ", 1)[1] for row in said("--from", "claude", "--list").splitlines()] == [
        "bad",
        "two  /srv/two  Rounding in the ledger",
        "one  /srv/app  Fix the totals of the ledger",
    ]
    told = json.loads(said("--from", "claude", "--list", "--json"))
    assert told["total"] == 3
    assert told["sessions"][1]["path"] == str(claude / "two.jsonl")
    assert "2026-02" in said("--from", "claude", "--list")


def test_a_long_file_is_listed_by_its_first_and_its_last_lines(claude: Path, said: Said) -> None:
    many = [assistant(f"a{n}", "u", {"type": "text", "text": "w " * 20_000}) for n in range(40)]
    title = {"type": "custom-title", "customTitle": "The long one", "sessionId": "s1"}
    write(claude / "long.jsonl", 1, user("u", None, "go", cwd="/srv/long"), *many, title)
    assert "/srv/long  The long one" in said("--from", "claude", "--list")


def test_sessions_of_codex_are_listed_by_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    folder = tmp_path / "sessions" / "2026" / "03" / "12"
    folder.mkdir(parents=True)
    name = "rollout-2026-03-12T10-00-00-0195a6c2-0000-7000-8000-000000000001.jsonl"
    write(
        folder / name,
        1,
        rollout("session_meta", {"id": "x", "cwd": "/srv/app"}),
        item("user", "<environment_context>none</environment_context>"),
        item("user", "Count the casks"),
    )
    (folder / name.replace("0001.jsonl", "0002.jsonl.zst")).write_bytes(b"packed")
    shown = said("--from", "codex", "--list").splitlines()
    assert any("/srv/app  Count the casks" in row for row in shown)
    assert len(shown) == 2


def test_an_empty_list_and_a_long_one_say_so(
    claude: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["context", "--from", "claude", "--list"]) == 0
    assert "no sessions of claude were found" in capsys.readouterr().err
    for n in range(33):
        write(claude / f"s{n}.jsonl", n, user("u", None, "go"))
    assert main(["context", "--from", "claude", "--list"]) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), "3 older ones" in err) == (30, True)


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--list"], "--list need --from"),
        (["--list", "--demo"], "name one thing"),
        (["f.json", "--from", "ullage"], "reads no file"),
        (["--from", "proxy"], "name one thing"),
    ],
)
def test_what_cannot_be_listed_or_read_is_refused(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["context", *argv]) == 1
    assert why in capsys.readouterr().err


# --- ullage's own sessions ------------------------------------------------------------------------


def record(url: str, name: str, model: str, base_url: str, **served: Any) -> None:
    """Write a session of one turn: a question, a call with its result, and an answer."""
    where = {"model": model, "dialect": "openai_chat", "base_url": base_url, **served}
    usage = {"input": 900, "cache_read": 0, "cache_write": 0, "output": 20, "reasoning": 0}
    with ullage.Session.create(ullage.open_log(url), name) as session:
        session.record(
            [
                Draft("user_message", {"text": "What is in the cellar?"}),
                Draft("turn_started", {"turn": "t1", "served": where}),
                Draft("provider_usage", {"model": model, "round": 1, "stop": "stop", **usage}),
                Draft("assistant_message", {"text": "Forty casks.", "model": model, "round": 1}),
                Draft("turn_completed", {"turn": "t1"}),
            ]
        )


def test_a_session_of_ullage_is_read_with_what_it_would_send_now(
    tmp_path: Path, said: Said
) -> None:
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    with closed_port() as port:
        where = f"http://127.0.0.1:{port}/v1"
        record(url, "older", "smollm2-135m", where, embedded="smollm2-135m", window=4_096)
        record(url, "newer", "qwen3-8b", where, needs=["key"], window=8_192)
    shown = said("--from", "ullage", "--list", "--store", url)
    assert [row.split("  ", 1)[1] for row in shown.splitlines()] == [
        "newer  What is in the cellar?", "older  What is in the cellar?",
    ]  # fmt: skip
    found = json.loads(said("--from", "ullage", "--last", "--store", url, "--json"))
    assert (found["source"]["session"], found["source"]["kind"]) == ("newer", "ullage")
    assert found["source"]["title"] == "What is in the cellar?"
    assert (found["window"]["tokens"], found["window"]["assumed"]) == (8_192, False)
    assert "when the session was kept" in found["window"]["said_by"]
    assert {"system", "tools", "user", "assistant"} <= {row["id"] for row in found["rows"]}
    assert (found["spent"]["input"], found["spent"]["dollars"]) == (900, None)
    named = json.loads(said("--from", "ullage", "--session", "old", "--store", url, "--json"))
    tools = next(row for row in named["rows"] if row["id"] == "tools")
    assert (tools["tokens"], tools["note"]) == (0, "not sent: dropped by the template")
    assert tools["unsent"] > 100
    assert "not sent: dropped by the template" in said(
        "--from", "ullage", "--session", "old", "--store", url
    )


class Echo:
    """A model of the program's own, which no other program can ask."""

    model = "echo"
    window = 4_000

    async def stream(self, request: Any) -> Any:
        yield "noted"


@pytest.mark.parametrize("window", [None, 4_000])
def test_a_compacted_session_is_read_as_it_would_be_sent(
    window: int | None, tmp_path: Path, said: Said
) -> None:
    for folder in ("log", "work"):
        (tmp_path / folder).mkdir()
    url = f"sqlite:{tmp_path / 'log' / 'sessions.db'}"
    agent = ullage.Agent(Echo(), workspace=tmp_path / "work")
    log = ullage.open_log(url)
    with ullage.Session.create(log, "long") as session:
        for turn in range(30):
            assert agent.run(session, f"Turn {turn}: the cask {turn} is empty. " * 12).ok
        assert session.fold.checkpoints
        parsed = dict(session.checkpoint_cache)
        assert agent.run(session, "one more").ok
        assert len(parsed) > 1
        assert all(session.checkpoint_cache[n] is made for n, made in parsed.items())
    log.close()
    more = () if window is None else ("--window", str(window))
    found = json.loads(said("--from", "ullage", "--last", "--store", url, "--json", *more))
    assert found["window"]["tokens"] == 4_000
    whole = sum(row["tokens"] for row in found["rows"])
    assert 1_000 < found["used"]["tokens"] <= whole < 4_000
    assert found["warnings"] == []


def test_the_window_of_the_last_answer_is_the_whole_one_and_its_models_alone(
    tmp_path: Path, said: Said
) -> None:
    for folder in ("log", "work"):
        (tmp_path / folder).mkdir()
    url = f"sqlite:{tmp_path / 'log' / 'sessions.db'}"
    policy = replace(Policy.ladder(), effective=0.5)
    agent = ullage.Agent(Echo(), workspace=tmp_path / "work", policy=policy)
    log = ullage.open_log(url)
    with ullage.Session.create(log, "short") as session:
        assert agent.run(session, "one").ok
    log.close()
    asked = ("--from", "ullage", "--last", "--store", url, "--json")
    assert json.loads(said(*asked))["window"]["tokens"] == 4_000
    assert json.loads(said(*asked, "--model", "gpt-4o"))["window"]["tokens"] == 128_000


# --- what a template drops ------------------------------------------------------------------------

TOOL = {
    "type": "function",
    "function": {"name": "read", "description": "Read it. " * 20, "parameters": {"type": "object"}},
}
CALL = {"id": "call00001", "type": "function", "function": {"name": "read", "arguments": "{}"}}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "go " * 30},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call00001", "content": "forty casks " * 30},
]
BARE = "{% for m in messages %}{{ m['role'] + ': ' + (m['content'] or '') + '\n' }}{% endfor %}"
WHOLE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ m['role'] + ': ' + (m['content'] or '') }}"
    "{% if m['tool_calls'] %}{{ m['tool_calls'] | tojson }}{% endif %}"
    "{{ m['reasoning_content'] or '' }}{% endfor %}"
)


@pytest.mark.parametrize(("template", "dropped"), [(BARE, {"tools", "tool_calls"}), (WHOLE, set())])
def test_a_real_server_tells_what_its_template_drops(
    template: str, dropped: set[str], llama_server: Callable[[Launch], Server]
) -> None:
    server = llama_server(Launch(window=2_048, chat_template=template))
    found = ullage.context(TALK, tools=[TOOL], base_url=server.base_url, runtime=Runtime())
    assert {row.id for row in found.report.rows if row.unsent} == dropped
    for row in found.report.rows:
        if row.id in dropped:
            assert (row.tokens, row.items) == (0, ())
    assert sum(row.tokens for row in found.report.rows) == found.report.used.tokens


@pytest.mark.smollm2
@pytest.mark.slow
def test_what_the_table_says_of_the_embedded_models_template_is_what_it_does() -> None:
    from ullage.embedded import smollm2

    with Server(smollm2(), Launch(window=512)) as server:
        runtime = Runtime()
        question = ullage.Guard(base_url=server.base_url, runtime=runtime)
        assert question.window().known
        found = ullage.context(TALK, tools=[TOOL], base_url=server.base_url, runtime=runtime)
    dropped = {row.id for row in found.report.rows if row.unsent}
    assert dropped <= set(catalog.SMOLLM2.dropped)
    assert {"tools", "tool_calls"} <= dropped


# --- the proxy ------------------------------------------------------------------------------------


def test_the_conversations_of_a_running_proxy_are_shown_with_their_sizes(said: Said) -> None:
    entry = {
        "id": "0123456789abcdef", "upstream": "local", "model": "qwen3-8b", "at": 1_770_000_000.0,
        "dialect": "openai_chat", "used": 6_000, "window": 8_192, "tier": "advisory",
        "basis": "provider", "messages": 12, "compactions": 1, "saved": 900, "requests": 7,
        "last_status": 200,
    }  # fmt: skip
    answer = of_json({"total": 1, "sessions": [entry]})
    with FaultServer({"/ullage/sessions": answer}) as server:
        at = ("--proxy", server.root_url)
        assert "0123456789abcdef" in said("--from", "proxy", "--list", *at)
        found = json.loads(said("--from", "proxy", "--last", "--json", *at))
        named = json.loads(said("--from", "proxy", "--session", "0123", "--json", *at))
    assert found == named
    assert (found["used"]["tokens"], found["window"]["tokens"]) == (6_000, 8_192)
    assert (found["model"], found["source"]["session"]) == ("qwen3-8b", "0123456789abcdef")
    assert [row["note"] for row in found["rows"]] == ["the proxy keeps sizes, and no text"]
    assert "7 requests" in found["warnings"]
    assert sum(row["tokens"] for row in found["rows"]) == 6_000


def test_without_a_proxy_its_store_tells_what_was_compacted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:{tmp_path / 'proxy.db'}"
    store = ullage.open_store(url)
    guard = ullage.Guard(window=1_200, store=store, policy=Policy.ladder())
    said = [
        {"role": role, "content": f"{n}: {'the cellar holds forty casks ' * 6}"}
        for n in range(20)
        for role in ("user", "assistant")
    ]
    assert guard.prepare([*said, {"role": "user", "content": "go"}]).prepared.checkpoint is not None
    store.close()
    with closed_port() as port:
        at = ("--from", "proxy", "--proxy", f"http://127.0.0.1:{port}", "--store", url)
        assert main(["context", *at, "--last", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(["context", *at, "--session", "nothing"]) == 1
        assert "--from proxy --list" in capsys.readouterr().err
    assert found["window"]["tokens"] == 1_200
    assert {row["id"] for row in found["rows"]} <= {"checkpoint", "unattributed"}
    assert sum(row["tokens"] for row in found["rows"]) == found["used"]["tokens"]
    assert any("were left out" in said_ for said_ in found["warnings"])


def test_results_and_calls_keep_their_places_in_a_session_of_a_program(claude: Path) -> None:
    write(
        claude / "s.jsonl",
        1,
        user("u", None, "go"),
        assistant("a", "u", call("c1")),
        result("r", "a", "c1"),
    )
    assert main(["context", "--from", "claude", "--last", "--brief"]) == 0
