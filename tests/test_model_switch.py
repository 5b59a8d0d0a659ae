"""Another model on the way: a larger window gets the whole history, a small one its checkpoint.

By every door: the library, wrapped clients, the proxy, the agent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

import ullage
from tests.agent.acting import QUICK, bodies, said, scripted
from tests.proxy.serving import PATHS, WHOLE, asked, conversation, proxied
from tests.support.faults import FaultServer, of_json
from tests.voyage import log_of
from ullage.agent import Agent, Session
from ullage.config.serving import ModelRule
from ullage.config.settings import Settings
from ullage.core.session.log.event import Draft
from ullage.providers import Provider
from ullage.proxy import routes
from ullage.runtime import Runtime

SMALL, LARGE = 6_000, 1_000_000


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
def test_by_the_library(url: str, tmp_path: Path) -> None:
    store = ullage.open_store(url + (str(tmp_path / "s.db") if url == "sqlite:" else ""))
    runtime, history = Runtime(), log_of(40)

    def send(model: str, window: int) -> list[Any]:
        guard = ullage.Guard(model, window=window, store=store, runtime=runtime)
        return guard.prepare(history).messages

    small = send("gpt-4o", SMALL)
    assert len(small) < len(history)
    assert send("gpt-4.1", LARGE) == history
    assert send("gpt-4.1", LARGE) == history
    assert send("gpt-4o", SMALL) == small
    store.close()


def test_by_a_wrapped_client() -> None:
    history: Any = log_of(40)
    known = {"small": SMALL, "large": LARGE}
    with (
        FaultServer({"POST *": of_json(WHOLE["openai_chat"])}) as server,
        openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client,
    ):
        runtime = Runtime(settings=Settings(context_windows=known))
        wrapped = ullage.wrap(client, runtime=runtime)
        for model in ("small", "large", "large", "small"):
            wrapped.chat.completions.create(model=model, messages=history)
        sent = [json.loads(request.body)["messages"] for request in asked(server)]
    assert len(sent[0]) < len(history)
    assert sent[1] == sent[2] == history
    assert sent[3] == sent[0]


@pytest.mark.parametrize("dialect", tuple(PATHS))
def test_by_the_proxy(dialect: str) -> None:
    rules = (ModelRule("small", window=SMALL), ModelRule("large", window=LARGE))
    path, body = PATHS[dialect], conversation(dialect, 30, stream=False)
    with (
        FaultServer({path: of_json(WHOLE[dialect])}) as upstream,
        proxied(upstream.root_url, rules=rules) as proxy,
    ):
        for model in ("small", "large", "large", "small"):
            assert proxy.post(path, {**body, "model": model}).status_code == 200
        name = routes.GUARDED[path].fields.messages
        sent = [json.loads(request.body)[name] for request in asked(upstream)]
    assert len(sent[0]) < len(body[name])
    assert sent[1] == sent[2] == body[name]
    assert sent[3] == sent[0]


def test_by_the_agent(tmp_path: Path) -> None:
    log = ullage.open_log(f"sqlite:{tmp_path / 'log.db'}")
    with Session.create(log) as session, scripted(*(said(str(n)) for n in range(4))) as server:
        for n in range(40):
            text = f"question {n} " + "word " * 40
            session.record([Draft("user_message", {"text": text})])
            session.record([Draft("assistant_message", {"text": f"answer {n}", "model": "m"})])
        for model, window in (("s", SMALL), ("l", LARGE), ("l", LARGE), ("s", SMALL)):
            provider = Provider(model, server.base_url, limits=QUICK)
            assert Agent(provider, window=window).run(session, "Go on").ok
        sizes = [len(body["messages"]) for body in bodies(server)]
        recorded = [e for e in session.events() if e.type == "history_compaction"]
    log.close()
    whole = 1 + 80 + 1
    assert sizes[0] < whole
    assert sizes[1:3] == [whole + 2, whole + 4]
    assert sizes[3] < whole
    assert 1 <= len(recorded) <= 2
