"""A conversation's own model as its summarizer, in every face that takes one, on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.agent.acting import CHAT, agent, bodies, said, scripted
from tests.support import tinymodel
from tests.support.faults import FaultServer, of_json
from ullage import config
from ullage.cli.main import main
from ullage.core.dialects import registry
from ullage.core.guard.events import Compacted, SummaryFailed, SummaryProgress
from ullage.core.session.log.event import Draft
from ullage.core.summary.question import Answer, SummaryRequest
from ullage.embedded import Launch, Server
from ullage.guard.same import SameModel
from ullage.guard.summarizer import THOUGHT, Summarizer
from ullage.providers import CallFailed, Provider
from ullage.runtime import Runtime
from ullage.windows import Question

SENTENCE = "Goal: mend the pump."
REQUEST = SummaryRequest("You keep records.", "Record this: x", "x", 64, 3)


@pytest.fixture(scope="module")
def recording(
    llama_server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> Server:
    """Return a real server whose model writes a record whatever it is asked."""
    path = tmp_path_factory.mktemp("recording") / "recording.gguf"
    return llama_server(Launch(window=4_096), tinymodel.make(path, sentence=SENTENCE))


def talk(turns: int) -> list[Any]:
    roles = ("user", "assistant")
    said = ((roles[n % 2], f"turn {n}: mend the pump in the cellar " + "word " * 40)
            for n in range(2 * turns))  # fmt: skip
    return [*({"role": role, "content": text} for role, text in said),
            {"role": "user", "content": "And now?"}]  # fmt: skip


def test_a_guard_asks_its_own_model(recording: Server) -> None:
    told: list[Any] = []
    guard = ullage.Guard(
        "tiny", base_url=recording.base_url, summarizer="same", on_event=told.append,
        runtime=Runtime(), policy=ullage.Policy(rungs=(LADDER,)),
    )  # fmt: skip
    view = guard.prepare(talk(30))
    (made,) = [event.checkpoint for event in told if isinstance(event, Compacted)]
    assert made.fallback_reason is None
    assert "mend the pump" in made.summary.partition("[end of facts]")[2]
    progress = [event for event in told if isinstance(event, SummaryProgress)]
    assert (progress[0].done, progress[-1].done) == (0, progress[-1].total)
    assert view.compaction is not None


LADDER = ullage.Rung(0.9, 0.5, ("summarise_middle", "clear", "trim_oldest"))


def test_compact_and_wrap_take_it_as_well(recording: Server) -> None:
    options: dict[str, Any] = {"model": "tiny", "runtime": Runtime(), "summarizer": "same"}
    reports: list[tuple[int, int | None]] = []
    made = ullage.compact(
        talk(30), target_tokens=2_000, base_url=recording.base_url,
        report=lambda done, total: reports.append((done, total)), **options,
    )  # fmt: skip
    assert (made.fallback_reason, made.flaws) == (None, ())
    assert reports[0] == (0, 2)  # 5,000 tokens in a window of 4,096
    with pytest.raises(ullage.ConfigurationError, match="no base_url is"):
        ullage.compact(talk(30), target_tokens=2_000, **options)
    openai = pytest.importorskip("openai")
    told: list[Any] = []
    policy = ullage.Policy(rungs=(LADDER,))
    with openai.OpenAI(base_url=recording.base_url, api_key="none") as client:
        wrapped = ullage.wrap(client, summarizer="same", on_event=told.append, policy=policy)
        wrapped.chat.completions.create(model="tiny", messages=talk(30), max_tokens=8)
    (compacted,) = [event.checkpoint for event in told if isinstance(event, Compacted)]
    assert compacted.fallback_reason is None


def test_an_agent_asks_the_provider_that_answers(recording: Server) -> None:
    provider = Provider("tiny", recording.base_url, options={"max_tokens": 24, "temperature": 0})
    runner = ullage.Agent(provider, summarizer="same", policy=ullage.Policy(rungs=(LADDER,)))
    told: list[Any] = []
    with ullage.Session.create(ullage.open_log("memory:")) as session:
        session.hear(told.append)
        for message in talk(40)[:-1]:
            kind = "user_message" if message["role"] == "user" else "assistant_message"
            session.record([Draft(kind, {"text": message["content"], "model": "tiny"})])
        done = asyncio.run(runner.acompact(session, target_tokens=2_600))
        made = asyncio.run(runner.asummarise(session))
        assert done.checkpoint is not None
        assert done.checkpoint.fallback_reason is None
        (branch,) = [e.data for e in made.events() if e.type == "branch_summary"]
    assert branch["fallback_reason"] is None
    states = [e.data for e in told if e.type == "status" and e.data.get("state") == "summarising"]
    assert any(state.get("total") for state in states)
    assert any(state.get("characters") for state in states)


def reasoning(text: str, finish: str = "stop") -> Any:
    message = {"content": text, "reasoning_content": "Hm."}
    return of_json({"choices": [{"message": message, "finish_reason": finish}]})


def test_a_model_that_reasons_gets_room_for_its_thoughts_from_then_on() -> None:
    with FaultServer({CHAT: (reasoning("", "length"), reasoning("Goal: go"))}) as server:
        small = Summarizer("m", base_url=server.base_url, window=20_000, runtime=Runtime())
        assert small(REQUEST) == Answer("", None, cut=True)
        assert small(REQUEST).text == "Goal: go"
        sizes = [json.loads(r.body)["max_tokens"] for r in server.requests]
    assert sizes == [64, 64 + THOUGHT]


def test_options_of_a_summarizer_are_sent_as_they_are() -> None:
    with FaultServer({CHAT: reasoning("Goal: go")}) as server:
        options = {"seed": 3}
        Summarizer("m", base_url=server.base_url, window=9_000, options=options)(REQUEST)
        body = json.loads(server.requests[0].body)
    assert body["seed"] == 3
    assert "temperature" not in body


@pytest.mark.parametrize("dialect", registry.DIALECTS)
def test_the_own_model_is_asked_in_every_dialect(dialect: Any) -> None:
    question = Question("m", "http://127.0.0.1:9/v1", "key", 9_000)
    same = SameModel(Runtime(), question)
    small = same.speak(dialect)
    assert small is same.speak(dialect)
    assert small.dialect == dialect
    assert same.window == asyncio.run(same.awindow()) == 9_000
    ask = small._ask(REQUEST, 9_000)
    assert "Record this: x" in json.dumps(ask.body)
    assert "You keep records." in json.dumps(ask.body)
    if dialect == "ollama_chat":
        assert (ask.body or {})["options"] == {"num_ctx": 9_000, "num_predict": 64}


def test_of_turns_options_a_summary_takes_no_tools_and_no_thinking(tmp_path: Path) -> None:
    options = {"tool_choice": "required", "thinking": {"budget_tokens": 9}, "top_k": 3}
    with scripted(said("Goal: mend the pump")) as server:
        runner = agent(server, options=options, summarizer="same")
        with ullage.Session.create(ullage.open_log("memory:")) as session:
            session.record([Draft("user_message", {"text": "pump " * 900})])
            session.record([Draft("assistant_message", {"text": "yes", "model": "model"})])
            asyncio.run(runner.asummarise(session))
        (body,) = bodies(server)
    assert body["top_k"] == 3
    assert not {"tool_choice", "thinking", "tools"} & body.keys()
    assert body["max_tokens"] > 32


def test_a_request_over_the_own_window_is_not_sent() -> None:
    with scripted(said("never")) as server:
        runner = agent(server, summarizer="same", window=2_000)
        with ullage.Session.create(ullage.open_log("memory:")) as session:
            own = runner._find_summarizer(session, runner.provider)
            assert own is not None
            with pytest.raises(NotImplementedError):
                own(REQUEST)
            with pytest.raises(ullage.ContextTooLargeError, match="larger window"):
                asyncio.run(own.acall(SummaryRequest("s", "pump " * 3_000, "x", 64, 3)))  # type: ignore[attr-defined]  # seen by shape
        assert bodies(server) == []


def test_what_a_summarizer_fails_with_is_told_once_without_secrets() -> None:
    def failing(request: SummaryRequest) -> str:
        raise CallFailed("no answer for sesame")

    told: list[Any] = []
    guard = ullage.Guard(
        "gpt-4o", window=3_000, api_key="sesame", summarizer=failing, on_event=told.append,
        policy=ullage.Policy(rungs=(LADDER,)), runtime=Runtime(),
    )  # fmt: skip
    guard.prepare(talk(25))
    texts = [event.text for event in told if type(event) is SummaryFailed]
    assert texts.count("the summarizer failed: CallFailed: no answer for [redacted]") == 1
    assert any("gave no summary (it did not answer)" in text for text in texts)
    assert guard.policy.rungs == (LADDER,)


# --- settings and options -----------------------------------------------------------------------


def settle(tmp_path: Path, text: str) -> config.Settings:
    file = tmp_path / "ullage.toml"
    file.write_text(text)
    return config.load({}, named=file).settings


@pytest.mark.parametrize("text", ['summarizer = "same"', "[summarizer]\nsame = true"])
def test_a_file_names_the_own_model(tmp_path: Path, text: str) -> None:
    settings = settle(tmp_path, text)
    assert settings.summarizer == "same"
    runtime = Runtime(settings=settings)
    known = ullage.Guard("m", base_url="http://127.0.0.1:9/v1", runtime=runtime)
    assert isinstance(known.port.driver.summarizer, SameModel)
    unknown = ullage.Guard("m", runtime=runtime)
    assert unknown.port.driver.summarizer is None
    with scripted(said("a")) as server:
        assert agent(server, runtime=runtime)._summarizer == "same"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('summarizer = "sesame"', 'a text other than "same"'),
        ('[summarizer]\nsame = true\nmodel = "m"', "same is true and model is set"),
        ("[summarizer]\nwindow = 9", "summarizer needs model"),
    ],
)
def test_a_file_that_names_nobody_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ullage.ConfigurationError, match=why) as caught:
        settle(tmp_path, text)
    assert "sesame" not in str(caught.value)


def test_same_may_be_turned_off_by_a_variable(tmp_path: Path) -> None:
    assert settle(tmp_path, "[summarizer]\nsame = false").summarizer is None
    found = config.load({"ULLAGE_SUMMARIZER": "same"}, named=None).settings
    assert found.summarizer == "same"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--summarizer", "sesame"], "give a base URL"),
        (["--summarizer", "same", "--summarizer-model", "m"], "--summarizer URL"),
        (["--summarizer-model", "m"], "--summarizer URL"),
    ],
)
def test_options_that_name_nobody_are_refused(
    options: list[str], why: str, capsys: Any, tmp_path: Path
) -> None:
    with scripted(said("a")) as server:
        store = f"sqlite:{tmp_path / 'log.db'}"
        words = ["run", "hello", "--store", store, "--base-url", server.base_url, "--model", "m"]
        (tmp_path / "work").mkdir()
        assert main([*words, "--workspace", str(tmp_path / "work"), *options]) != 0
    assert why in capsys.readouterr().err


def test_run_and_compact_name_the_own_model_and_a_server(
    recording: Server, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(talk(30)))
    served = ["--model", "tiny", "--base-url", recording.base_url]
    base = ["compact", str(file), "--target", "2000", "--policy", "ladder", "--out"]
    out = str(tmp_path / "out.json")
    assert main([*base, out, *served, "--summarizer", "same"]) == 0
    assert "by hierarchical" in capsys.readouterr().err
    assert main([*base, out, "--model", "tiny", "--summarizer", recording.base_url]) == 0
    assert "by hierarchical" in capsys.readouterr().err
    assert main([*base, out, "--model", "tiny"]) == 0
    assert "and is kept by rule" in capsys.readouterr().err
    assert main([*base, out, *served]) != 0
    assert "--base-url is for sessions" in capsys.readouterr().err
