"""Templates whose roles alternate, by every door: learned from the server, its name, a refusal."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

import ullage
from tests.agent.acting import QUICK, bodies, scripted
from tests.agent.acting import said as saying
from tests.proxy.serving import CHAT, WHOLE, asked, proxied
from tests.support.faults import FaultServer, of_json
from tests.support.fixtures import StartServer
from tests.support.templates import STRICT, render
from ullage.agent import Agent, Session
from ullage.config.serving import ModelRule
from ullage.core.session.log.event import Draft
from ullage.embedded import Launch, Server
from ullage.providers import Provider
from ullage.runtime import Runtime
from ullage.windows import Question

WINDOW = 2048

REFUSAL = of_json(
    {"error": {"code": 500, "message": "Jinja Exception: Conversation roles must alternate "
               "user/assistant/user/assistant/...", "type": "server_error"}},
    500,
)  # fmt: skip
"""What llama.cpp's server answers (issue 21879 there)."""


def history(turns: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for n in range(turns):
        made.append({"role": "user", "content": f"question {n} " + "what of it " * 20})
        made.append({"role": "assistant", "content": f"answer {n} " + "so it is " * 20})
    return [*made, {"role": "user", "content": "and now?"}]


@pytest.fixture(scope="module")
def strict(llama_server: StartServer) -> Server:
    return llama_server(Launch(window=WINDOW, chat_template=STRICT))


# --- on a real server -----------------------------------------------------------------------------


def test_a_real_server_refuses_what_is_not_put_together(strict: Server) -> None:
    with openai.OpenAI(base_url=strict.base_url, api_key="k", max_retries=0) as client:
        twice: Any = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
        with pytest.raises(openai.APIStatusError, match="must alternate") as caught:
            client.chat.completions.create(model="tiny", messages=twice)
    kind = ullage.classify_exception(caught.value)
    assert (kind.kind, kind.about) == ("malformed_history", "alternation")


@pytest.mark.parametrize("wrapped", [False, True])
def test_compactions_on_a_real_server_are_never_refused(strict: Server, wrapped: bool) -> None:
    told: list[Any] = []
    options: dict[str, Any] = {"runtime": Runtime(), "on_event": told.append}
    with openai.OpenAI(base_url=strict.base_url, api_key="k", max_retries=0) as client:
        guard = ullage.Guard("tiny", base_url=strict.base_url, api_key="k", **options)
        inside = ullage.wrap(client, **options)
        for turns in (10, 20, 21, 30, 31, 45):
            sent: Any = history(turns)
            if wrapped:
                inside.chat.completions.create(model="tiny", messages=sent, max_tokens=4)
            else:
                guard.call(client.chat.completions.create, sent, max_tokens=4)
    assert [e for e in told if isinstance(e, ullage.events.Compacted)]
    assert not [e for e in told if isinstance(e, ullage.events.Refused)]


def test_the_proxy_puts_together_what_it_compacts(strict: Server) -> None:
    with proxied(strict.root_url, rules=(ModelRule(),)) as proxy:
        bodies = [
            {"model": "tiny", "messages": history(turns), "max_tokens": 4}
            for turns in (10, 25, 26, 40)
        ]
        answers = [proxy.post(CHAT, body) for body in bodies]
    assert [got.status_code for got in answers] == [200] * 4
    assert "x-ullage-compaction" in answers[-1].headers


def test_the_agent_puts_together_what_it_compacts(strict: Server) -> None:
    with Session.create(ullage.open_log("memory:")) as session:
        for n in range(60):
            text = f"question {n} " + "word " * 20
            session.record([Draft("user_message", {"text": text})])
            session.record([Draft("assistant_message", {"text": f"answer {n}", "model": "m"})])
        provider = Provider("tiny", strict.base_url, limits=QUICK, options={"max_tokens": 4})
        done = Agent(provider).run(session, "Go on")
        assert done.ok, done.error
        made = [e for e in session.events() if e.type == "history_compaction"]
    assert made


# --- without a template to look at ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "wants"),
    [
        ("google/gemma-3-27b-it", True),
        ("medgemma-4b", True),
        ("Mistral-7B-Instruct-v0.3", True),
        ("unsloth/Devstral-Small-2-24B", True),
        ("ministral-3:14b", True),
        ("llama-2-13b-chat", True),
        ("llama-2.5", False),
        ("llama-3.3-70b", False),
        ("qwen3-8b", False),
        (None, False),
    ],
)
def test_a_family_is_known_by_its_name_where_somebody_serves_it(
    model: str | None, wants: bool
) -> None:
    windows = Runtime().windows
    assert windows.wants_turns(Question(model, "http://127.0.0.1:9/v1")) == wants
    assert not windows.wants_turns(Question(model))
    assert not windows.wants_turns(Question(model, "https://openrouter.ai/api/v1"))


def test_the_first_refusal_is_answered_and_remembered() -> None:
    with FaultServer({"POST *": (REFUSAL, of_json(WHOLE["openai_chat"]))}) as server:
        runtime = Runtime()
        guard = ullage.Guard(
            "strange", base_url=server.base_url, api_key="k", window=1500, runtime=runtime
        )
        with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
            for turns in (30, 31):
                sent: Any = history(turns)
                guard.call(client.chat.completions.create, sent)
        tried = [json.loads(r.body)["messages"] for r in asked(server)]
    assert len(tried) == 3
    assert [m["role"] for m in tried[0]].count("user") > [m["role"] for m in tried[1]].count("user")
    for messages in tried[1:]:
        assert "and now?" in render(STRICT, messages)


def test_a_refusal_of_a_history_that_takes_turns_passes_through() -> None:
    with FaultServer({"POST *": REFUSAL}) as server:
        guard = ullage.Guard("strange", base_url=server.base_url, window=8000, runtime=Runtime())
        sent: Any = history(3)
        with (
            openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client,
            pytest.raises(openai.InternalServerError),
        ):
            guard.call(client.chat.completions.create, sent)
        assert len(asked(server)) == 1


def test_the_proxy_learns_from_the_first_refusal() -> None:
    body = {"model": "strange", "messages": history(40), "max_tokens": 4}
    with (
        FaultServer({CHAT: (REFUSAL, of_json(WHOLE["openai_chat"]))}) as upstream,
        proxied(upstream.root_url, rules=(ModelRule(window=2000),)) as proxy,
    ):
        assert proxy.post(CHAT, body).status_code == 200
        assert proxy.post(CHAT, body).status_code == 200
        tried = [json.loads(request.body)["messages"] for request in asked(upstream)]
    assert len(tried) == 3
    assert tried[1] == tried[2]
    render(STRICT, tried[2])


def test_the_agents_facts_stand_in_the_message_that_was_put_together() -> None:
    with (
        Session.create(ullage.open_log("memory:")) as session,
        scripted(saying("one"), saying("two")) as server,
    ):
        for n in range(2):
            session.record([Draft("user_message", {"text": f"lost {n}"})])
            session.record([Draft("turn_started", {"turn": f"t{n}"})])
            session.record([Draft("turn_interrupted", {"turn": f"t{n}"})])
        provider = Provider("gemma-3", server.base_url, limits=QUICK)
        assert Agent(provider, window=8000).run(session, "first").ok
        (sent,) = bodies(server)
    people = [m["content"] for m in sent["messages"] if m["role"] == "user"]
    assert len(people) == 1
    assert "lost 0\n\nlost 1\n\nfirst" in str(people[0])
