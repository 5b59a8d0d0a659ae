"""Summaries behind a proxy: the upstream's own model, by the client's key, and what is told."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.proxy.serving import proxied
from tests.support.faults import FaultServer, of_json
from ullage.cli.main import main
from ullage.config.serving import ModelRule
from ullage.core.compaction.policy import Policy, Rung

CHAT = "POST /v1/chat/completions"
POLICY = Policy(rungs=(Rung(0.9, 0.5, ("summarise_middle", "clear", "trim_oldest")),))
RULES = (ModelRule(window=4_000, policy=POLICY),)


def answer(text: str) -> Any:
    return of_json({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})


def history() -> list[dict[str, str]]:
    said = ({"role": ("user", "assistant")[n % 2], "content": f"turn {n} pump " + "word " * 80}
            for n in range(60))  # fmt: skip
    return [*said, {"role": "user", "content": "And now?"}]


def test_the_upstreams_own_model_writes_summaries_by_the_clients_key():
    with (
        FaultServer({CHAT: answer("Goal: mend the pump")}) as server,
        proxied(server.base_url, rules=RULES, summarizer="same") as proxy,
    ):
        body = {"model": "m", "messages": history()}
        done = proxy.post("/v1/chat/completions", body, authorization="Bearer sesame-opens")
        *asked, sent = server.requests
    assert done.status_code == 200
    assert "strategy=hierarchical" in done.headers["x-ullage-compaction"]
    assert all(json.loads(r.body)["messages"][0]["role"] == "system" for r in asked)
    assert "Goal:\\n- mend the pump" in sent.body.decode()
    assert {dict(r.headers)["authorization"] for r in (*asked, sent)} == {"Bearer sesame-opens"}


def test_a_summarizer_that_fails_is_logged_and_the_request_goes_out(
    caplog: pytest.LogCaptureFixture,
):
    with (
        FaultServer({CHAT: (of_json({"error": "down"}, 500), answer("ok"))}) as server,
        proxied(server.base_url, rules=RULES, summarizer="same") as proxy,
        caplog.at_level(logging.WARNING, "ullage.proxy"),
    ):
        done = proxy.post("/v1/chat/completions", {"model": "m", "messages": history()})
    assert done.status_code == 200
    assert "the summarizer failed: ProviderError" in caplog.text
    assert "kept by rule" in caplog.text


def test_serve_names_the_summarizer(capsys: Any):
    assert main(["serve", "--upstream", "http://127.0.0.1:9", "--summarizer", "sesame"]) == 1
    assert "--summarizer is 'sesame'" in capsys.readouterr().err
