"""What a guard takes from the settings where its arguments say nothing, from a file on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

import ullage
from tests.support.faults import FaultServer, of_json
from tests.voyage import log_of
from ullage import config
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.guard.events import Event, Notice
from ullage.core.tokens.budget import SHARES
from ullage.core.tokens.gauge import Thresholds
from ullage.providers import Provider
from ullage.runtime import Runtime

MODEL = "gpt-4o"
FILE = """
pins = [0, 999]

[policy]
tail_tokens = 10

[policy.thresholds]
warning = 0.75

[[policy.rungs]]
at = 0.6
target = 0.4
strategies = ["trim_oldest"]

[shares]
system_prompt = 0.1
tools = 0.2
knowledge = 0.15
conversation = 0.45
output_buffer = 0.1
"""
WANTED = Policy(
    thresholds=Thresholds(warning=0.75),
    rungs=(Rung(0.6, 0.4, ("trim_oldest",)),),
    tail_tokens=10,
)
SUMMARY = {"choices": [{"message": {"content": "Goal:\n- sail on"}, "finish_reason": "stop"}]}


def runtime_of(text: str, tmp_path: Path, **variables: str) -> Runtime:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    environment = {"ULLAGE_CONFIG": str(file), **variables}
    return Runtime(settings=config.load(environment, tmp_path / "nowhere").settings)


def test_a_guard_acts_by_the_file_and_by_its_arguments_first(tmp_path: Path) -> None:
    runtime = runtime_of(FILE, tmp_path)
    guard = ullage.Guard(MODEL, window=3000, runtime=runtime)
    assert guard.policy == WANTED
    assert guard.port.shares == SHARES
    own = ullage.Guard(MODEL, window=3000, runtime=runtime, policy="off", shares={**SHARES})
    assert own.policy == Policy.off()
    over = runtime_of(FILE, tmp_path, ULLAGE_POLICY="advisory")
    assert ullage.Guard(MODEL, runtime=over).policy == Policy.advisory()


def test_pins_of_the_file_hold_in_every_request_of_a_guard(tmp_path: Path) -> None:
    messages = log_of(60)
    guard = ullage.Guard(MODEL, window=4000, runtime=runtime_of(FILE, tmp_path))
    for view in (guard.prepare(messages), asyncio.run(guard.aprepare(messages))):
        assert view.prepared.outcome is not None or view.prepared.replayed is not None
        assert any(message is messages[0] for message in view.messages)
    made = ullage.compact(
        messages, target_tokens=2500, model=MODEL, runtime=runtime_of(FILE, tmp_path)
    )
    assert any(message is messages[0] for message in made.messages)


def test_the_summarizer_of_the_file_writes_the_summaries(tmp_path: Path) -> None:
    with FaultServer({"POST /v1/chat/completions": of_json(SUMMARY)}) as server:
        base = f"{server.root_url}/v1"
        text = f'[summarizer]\nmodel = "small"\nbase_url = "{base}"\nwindow = 9000\n'
        runtime = runtime_of(f'policy = "auto_summary"\n{text}', tmp_path)
        ullage.compact(log_of(60), target_tokens=3000, model=MODEL, runtime=runtime)
        asked = [json.loads(request.body) for request in server.requests if request.body]
        assert {body["model"] for body in asked} == {"small"}
        heard = len(asked)
        guard = ullage.Guard(MODEL, window=4000, runtime=runtime)
        guard.prepare(log_of(60))
        assert len([request for request in server.requests if request.body]) > heard
        agent = ullage.Agent(Provider("m", base, "openai_chat", None), runtime=runtime)
        assert agent.policy == Policy.auto_summary()
        assert getattr(agent._summarizer, "model", None) == "small"


def test_compact_takes_a_policy_that_compacts_and_else_the_ladder(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = log_of(40)
    given: dict[str, Any] = {"target_tokens": 2000, "model": MODEL}
    advisory = runtime_of('policy = "advisory"', tmp_path)
    assert ullage.compact(messages, runtime=advisory, **given).policy == "advisory/1"
    runtime = runtime_of('policy = "off"', tmp_path)
    assert ullage.compact(messages, runtime=runtime, **given).policy == "ladder/1"
    own = ullage.compact(messages, runtime=runtime, policy="auto_summary", **given)
    assert own.policy == "auto_summary/1"


def test_a_wrapped_client_acts_by_the_file(tmp_path: Path) -> None:
    runtime = runtime_of(FILE, tmp_path)
    answer = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
        ],
    }
    with (
        FaultServer({"POST /v1/chat/completions": of_json(answer)}) as server,
        openai.OpenAI(base_url=f"{server.root_url}/v1", api_key="k", max_retries=0) as plain,
    ):
        client = ullage.wrap(plain, window=4000, runtime=runtime)
        messages: Any = log_of(60)
        client.chat.completions.create(model=MODEL, messages=messages)
        sent = json.loads(server.requests[-1].body)["messages"]
    assert len(sent) < len(messages)
    assert sent[0] == messages[0]


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_the_window_report_names_the_point_of_the_policy_of_the_file(
    tmp_path: Path, share: float
) -> None:
    rung = f"[[policy.rungs]]\nat = {share}\ntarget = 0.1\nstrategies = ['clear']\n"
    runtime = runtime_of(f"[context_windows]\n'{MODEL}' = 10000\n{rung}", tmp_path)
    found = ullage.context(log_of(3), model=MODEL, runtime=runtime)
    assert found.compaction_at == int(share * 10_000)


# --- what a notice proposes -----------------------------------------------------------------------


@pytest.mark.parametrize("model", [None, "gpt-4o", "a model that nobody knows"])
def test_the_call_that_a_notice_of_pressure_proposes_runs_as_it_is_written(
    model: str | None,
) -> None:
    messages = [
        {"role": role, "content": f"{turn}: " + "so it is, and so it was before. " * 6}
        for turn in range(10)
        for role in ("user", "assistant")
    ]
    messages.append({"role": "user", "content": "and now?"})
    told: list[Event] = []
    options: Any = {"window": 1_500, "policy": "off", "runtime": Runtime()}
    ullage.Guard(model, on_event=told.append, **options).prepare(messages)
    (notice,) = [event.text for event in told if isinstance(event, Notice)]
    named = "" if model is None else f"model={model!r}, "
    assert f"ullage.compact(messages, {named}window=1500, target_ratio=0.6" in notice
    call = notice.partition("Look first: ")[2]
    found = eval(call, {"ullage": ullage, "messages": messages})
    assert found.before.high > 900 >= found.after.high
    assert found.messages == messages
