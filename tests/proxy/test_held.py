"""A request held as bytes says, read again, what its guard had of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.proxy.serving import CHAT, PATHS, WHOLE, asked, conversation, proxied
from tests.support.faults import FaultServer, of_json
from ullage.config.serving import ModelRule, Serve, Upstream
from ullage.proxy import body as bodies
from ullage.proxy import routes
from ullage.proxy.call import ProxyCall, fill_history
from ullage.proxy.guarding import Guarding
from ullage.proxy.held import count_bytes, hold_request
from ullage.proxy.ledger import Ledger
from ullage.runtime import Runtime
from ullage.storage.memory import MemoryStore

UPSTREAM = Upstream("main", "http://127.0.0.1:9")
SCHEMA = {"type": "object", "properties": {}}
TOOLS: dict[str, Any] = {
    "openai_chat": {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
    "openai_responses": {"type": "function", "name": "f", "parameters": SCHEMA},
    "anthropic": {"name": "f", "input_schema": SCHEMA},
    "ollama_chat": {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
}
APART = {"anthropic": "system", "openai_responses": "instructions"}


def call(dialect: str, body: dict[str, Any], path: str = "") -> ProxyCall:
    form = routes.GUARDED[path or PATHS[dialect]]
    read = bodies.read(json.dumps(body).encode(), form.fields.messages)
    fill_history(form, read)
    return ProxyCall(form, read, UPSTREAM, ModelRule(window=4096), "m")


@pytest.mark.parametrize("turns", [2, 30])
@pytest.mark.parametrize("dialect", PATHS)
def test_what_is_read_again_is_what_was_sent(dialect: str, turns: int) -> None:
    runtime = Runtime()
    guarding = Guarding(Serve((UPSTREAM,), usage="passive"), runtime, MemoryStore(), Ledger())
    apart = {APART[dialect]: "Be brief."} if dialect in APART else {}
    made = call(dialect, conversation(dialect, turns, tools=[TOOLS[dialect]], **apart))
    plan = asyncio.run(guarding.plan(made))
    view = plan.view
    assert view is not None
    held = hold_request(made, plan, view)
    came, sent = held.read_came(), held.read_sent()
    assert (came.messages, came.tools, came.system) == (
        view.request.messages, view.request.tools, view.request.system,
    )  # fmt: skip
    assert list(sent.messages) == view.messages
    assert (sent.tools, sent.system) == (came.tools, came.system)
    read = held.read_transcript(runtime)
    assert [each.text for each in read.messages] == [e.text for e in view.prepared.sent.messages]
    compacted = view.compaction is not None
    assert compacted == (turns == 30)
    size = len(made.body.raw) + (len(plan.body) if compacted else 0)
    assert count_bytes([held, hold_request(made, plan, view)]) == size


def test_a_prompt_that_is_a_text_is_read_as_the_message_that_it_is() -> None:
    guarding = Guarding(Serve((UPSTREAM,)), Runtime(), MemoryStore(), Ledger())
    made = call("openai_responses", {"model": "m", "input": "What of this?"})
    plan = asyncio.run(guarding.plan(made))
    assert plan.view is not None
    held = hold_request(made, plan, plan.view)
    assert held.read_came().messages == [{"role": "user", "content": "What of this?"}]


def test_another_policy_is_tried_with_the_tools_that_were_added() -> None:
    before = []
    for tools in (False, True):
        rules = (ModelRule(window=4096, recall_tools=tools),)
        with (
            FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
            proxied(upstream.root_url, rules=rules) as proxy,
        ):
            proxy.post(CHAT, conversation("openai_chat", 30, stream=False))
            (entry,) = proxy.app.ledger.all()
            before.append(proxy.app.watch.preview(entry.id, "")["before"])
            (sent,) = asked(upstream)
            assert ("ullage_recall" in sent.body.decode()) == tools
    assert before[1] > before[0] + 100
