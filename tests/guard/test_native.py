"""Asking a provider to compact: who is asked, with what, and what comes of a failure."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.compacting import compacting
from tests.support.faults import FaultServer, of_json
from ullage import Guard, Policy, Rung
from ullage.runtime import Runtime

POLICY = Policy(name="asking", rungs=(Rung(0.8, 0.6, ("native", "clear", "trim_oldest")),))
WINDOW = 2_000


def history() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"role": "user", "content": "The task."}]
    for n in range(40):
        made.append({"role": "assistant", "content": f"answer {n} " + "word " * 40})
        made.append({"role": "user", "content": f"question {n}"})
    return made


def guard(base_url: str | None, **options: Any) -> Guard:
    return Guard("claude-opus-4-8", base_url=base_url, api_key="k", dialect="anthropic",
                 window=WINDOW, policy=POLICY, **{"runtime": Runtime(), **options})  # fmt: skip


def test_it_is_asked_with_the_whole_conversation_and_the_beta_that_it_needs():
    with FaultServer({"POST *": of_json({"content": []})}) as server:
        view = guard(server.root_url).prepare(history(), system="Be brief.")
    (asked,) = server.requests
    body = json.loads(asked.body)
    assert body["compaction"] == {"type": "summarize"}
    assert body["system"] == "Be brief."
    assert body["messages"][0] == history()[0]
    assert asked.headers["anthropic-beta"] == "compact-2026-09-04"
    assert asked.headers["x-api-key"] == "k"
    assert view.prepared.checkpoint is not None
    assert "native" not in view.prepared.checkpoint.strategy


@pytest.mark.parametrize(("status", "times"), [(404, 1), (500, 2)])
def test_a_server_that_does_not_know_the_way_is_asked_once(status: int, times: int):
    runtime = Runtime()
    with FaultServer({"POST *": of_json({"error": "x"}, status)}) as server:
        for name in ("a", "b"):
            own = guard(server.root_url, runtime=runtime).session(name)
            assert own.prepare(history()).prepared.checkpoint is not None
    assert len(server.requests) == times


def test_without_a_server_nobody_is_asked():
    view = guard(None).prepare(history())
    assert view.prepared.checkpoint is not None
    assert "native" not in view.prepared.checkpoint.strategy


def test_it_is_asked_beside_the_event_loop():
    async def prepare(url: str) -> Any:
        return await guard(url).aprepare(history())

    with compacting() as server:
        view = asyncio.run(prepare(server.url))
    assert view.prepared.checkpoint.strategy == "native"
    assert view.messages[0]["content"][0] == server.made[0]
    assert view.messages[1] == history()[0]


def test_a_checkpoint_with_it_is_replayed_to_the_byte():
    with compacting() as server:
        own = guard(server.url)
        first = own.prepare(history()).messages
        grown = [*history(), {"role": "assistant", "content": "Yes."},
                 {"role": "user", "content": "On."}]  # fmt: skip
        assert own.prepare(grown).messages[: len(first)] == first
    assert len(server.made) == 1
