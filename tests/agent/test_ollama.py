"""An agent whose model is behind Ollama's own API, at a server of the documented shape."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import QUICK, data, types
from tests.support.ollama import Ollama, Turn
from ullage.agent import Agent, Live, Session
from ullage.cli.main import main
from ullage.providers import Provider

LOOK = Turn(
    thinking="Two files, I read both.",
    calls=[("read", {"path": "cellar.txt"}), ("read", {"path": "attic.txt"})],
)
DONE = Turn("Seven casks, two chests.")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "cellar.txt").write_text("seven casks\n")
    (folder / "attic.txt").write_text("two chests\n")
    return folder


def hire(server: Ollama, workspace: Path | None = None, **more: Any) -> Agent:
    options = more.pop("options", {})
    limits = more.pop("limits", QUICK)
    provider = Provider("qwen3:14b", server.base_url, "ollama", options=options, limits=limits)
    return Agent(provider, workspace=workspace, **more)


def test_calls_without_ids_are_run_and_answered_in_their_order(
    session: Session, workspace: Path
) -> None:
    live: list[Live] = []
    session.hear(lambda event: live.append(event) if isinstance(event, Live) else None)
    with Ollama([LOOK, DONE]) as server:
        done = hire(server, workspace).run(session, "What is in the house?")
    assert (done.ok, done.text.strip(), server.refused) == (True, DONE.text, [])
    assert "".join(e.data["text"] for e in live if e.type == "reasoning_delta").strip() == (
        LOOK.thinking
    )
    asked, cellar, attic = server.asked[1]["messages"][-3:]
    assert asked["thinking"].strip() == LOOK.thinking
    assert [c["function"]["arguments"]["path"] for c in asked["tool_calls"]] == [
        *("cellar.txt", "attic.txt")
    ]
    assert "seven casks" in cellar["content"]
    assert "two chests" in attic["content"]
    ids = [row["call_id"] for row in data(session, "tool_call")]
    assert len(set(ids)) == len(ids) == 2
    assert [row["output"] for row in data(session, "provider_usage")] == [9, 9]


def test_two_rounds_of_the_same_calls_keep_their_results_apart(
    session: Session, workspace: Path
) -> None:
    with Ollama([LOOK, LOOK, LOOK, DONE]) as server:
        runner = hire(server, workspace)
        assert runner.run(session, "Look three times.").ok
        assert runner.run(session, "And again?").ok
    assert server.refused == []
    results = [m for m in server.asked[-1]["messages"] if m["role"] == "tool"]
    assert [("casks" in m["content"], "chests" in m["content"]) for m in results] == (
        [(True, False), (False, True)] * 3
    )


def test_the_servers_own_window_holds_where_nobody_names_one(session: Session) -> None:
    with Ollama([DONE], window=4_096) as server:
        runner = hire(server)
        assert runner.run(session, "hi").ok
        assert "options" not in server.asked[0]
        assert asyncio.run(runner.awindow()).input_tokens == 4_096


def test_a_window_that_is_named_is_asked_for(session: Session) -> None:
    with Ollama([DONE], window=4_096) as server:
        assert hire(server, window=16_384, options={"options": {"seed": 1}}).run(session, "hi").ok
    assert server.asked[0]["options"] == {"seed": 1, "num_ctx": 16_384}


@pytest.mark.parametrize(("window", "bound"), [(None, 6_000), (20_000, 6_000), (3_000, 3_000)])
def test_a_window_that_the_options_ask_for_is_kept_to(window: int | None, bound: int) -> None:
    with Ollama([DONE]) as server:
        runner = hire(server, window=window, options={"options": {"num_ctx": 6_000}})
        assert asyncio.run(runner.awindow()).input_tokens == bound


def test_a_history_that_the_server_refuses_is_made_smaller_and_sent_again(
    session: Session, workspace: Path
) -> None:
    (workspace / "cellar.txt").write_text("a cask of oak\n" * 700)
    with Ollama([LOOK, DONE], trained=4_000) as server:
        done = hire(server, workspace, window=12_000).run(session, "What is in the house?")
    assert (done.ok, server.refused, server.overflows) == (True, [], 1)
    assert len(server.asked) == 3


def test_a_stream_that_ends_early_is_tried_again(session: Session) -> None:
    with Ollama([Turn("", breaks=True), DONE]) as server:
        assert hire(server).run(session, "hi").text.strip() == DONE.text
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (Turn("Seven", error="llama runner process has terminated"), "runner process"),
        (Turn("Seven", breaks=True), "before the end of the answer"),
    ],
)
def test_an_answer_that_breaks_off_fails_the_turn_and_says_why(
    session: Session, turn: Turn, words: str
) -> None:
    with Ollama([turn]) as server:
        done = hire(server).run(session, "hi")
    assert not done.ok
    assert words in str(data(session, "turn_failed")[0])
    assert types(session)[-1] == "turn_failed"


def test_a_picture_stands_beside_the_text(session: Session) -> None:
    pixel = {"type": "image", "data": "aGk=", "media_type": "image/png"}
    with Ollama([DONE], window=32_768) as server:
        assert hire(server).run(session, "look", parts=[pixel]).ok
    assert server.asked[0]["messages"][-1]["images"] == ["aGk="]


@pytest.mark.parametrize("path", ["", "/v1", "/api"])
def test_the_command_finds_the_only_model_that_is_served(
    tmp_path: Path, workspace: Path, capsys: Any, path: str
) -> None:
    words = [
        "--store",
        f"sqlite:{tmp_path}/state/s.db",
        "--workspace",
        str(workspace),
        "--no-shell",
    ]
    with Ollama([LOOK, DONE], window=32_768) as server:
        where = ["--base-url", server.base_url + path, "--dialect", "ollama_chat"]
        assert main(["run", "What is in the house?", *words, *where, "--max-tokens", "99"]) == 0
        shown = capsys.readouterr()
        assert (shown.out.strip(), server.refused) == (DONE.text, [])
        assert server.asked[0]["options"] == {"num_predict": 99}
        server.models = ("a", "b")
        assert main(["run", "hi", *words, *where]) == 1
        assert "serves 2 models (a, b)" in capsys.readouterr().err
