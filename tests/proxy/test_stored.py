"""Histories that the server keeps: measured from what it reported of them, and never edited."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.proxy.serving import RESPONSES, Proxy, asked, proxied, talk
from tests.support.faults import Answer, FaultServer, of_json, sse
from ullage.config.serving import ModelRule
from ullage.core.dialects.usage import Usage
from ullage.core.messages.size import Size
from ullage.core.tokens.counting import EXACT, Measure
from ullage.proxy import stored
from ullage.proxy.stored import Histories, MeasuredRequest, key_of, name_of

WINDOW = 1_000
RULES = (ModelRule(window=WINDOW),)


def told(name: str, prompt: int, output: int = 20, reasoning: int = 0) -> dict[str, Any]:
    """Return a response with an id and its usage."""
    details = {"reasoning_tokens": reasoning}
    usage = {"input_tokens": prompt, "output_tokens": output, "output_tokens_details": details}
    return {"id": name, "object": "response", "status": "completed", "output": [], "usage": usage}


def whole(*responses: dict[str, Any]) -> tuple[Answer, ...]:
    return tuple(map(of_json, responses))


def posted(proxy: Proxy, **more: Any) -> httpx2.Response:
    return proxy.post(RESPONSES, talk("openai_responses", stream=False, **more))


def context(answer: httpx2.Response) -> dict[str, str]:
    said = answer.headers["x-ullage-context"]
    return dict(part.split("=") for part in said.split("; "))


# --- what is said of a request --------------------------------------------------------------------


def test_a_request_is_as_large_as_the_history_that_it_names_and_its_own_part() -> None:
    with (
        FaultServer({RESPONSES: whole(told("a", 400, 30), told("b", 440, 25))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        first = context(posted(proxy))
        second = posted(proxy, previous_response_id="a", words=10)
        third = context(posted(proxy, previous_response_id="b"))
        (entry,) = proxy.app.ledger.all()
        pressed = proxy.shown("ullage_context_used_ratio_count")
        read = proxy.shown("ullage_tokens_total", kind="input_uncached")
    own = int(first["used"])  # a request of its own of the same size
    assert 430 < int(context(second)["used"]) < 430 + 2 * own + 20
    assert 465 < int(third["used"]) <= 465 + own
    assert (third["window"], third["basis"], third["tier"]) == ("1000", "calibrated", "none")
    bodies = [json.loads(request.body) for request in asked(upstream)]
    assert bodies[1] == talk("openai_responses", stream=False, previous_response_id="a", words=10)
    assert (entry.requests, entry.used, entry.window) == (3, int(third["used"]), WINDOW)
    assert pressed == 3
    assert read == 400 + 440 + 440


def test_a_stream_tells_of_its_id_too() -> None:
    ended = {"type": "response.completed", "response": told("s", 700, 100)}
    begun = {"type": "response.output_text.delta", "delta": "so"}
    with (
        FaultServer({RESPONSES: (sse(begun, ended), of_json(told("t", 830)))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        proxy.post(RESPONSES, talk("openai_responses"))
        found = context(posted(proxy, previous_response_id="s"))
    assert int(found["used"]) > 800
    assert found["tier"] in ("advisory", "warning")


@pytest.mark.parametrize("value", ["never heard", 7, ["a"], "x" * 300, "half a \ud800"])
def test_of_an_id_that_nobody_told_of_nothing_is_said(value: Any) -> None:
    with (
        FaultServer({RESPONSES: of_json(told("r", 500))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        found = context(posted(proxy, previous_response_id=value))
        assert proxy.app.ledger.all()[0].used is None
    assert found == {"window": "1000", "tier": "unavailable"}
    assert json.loads(asked(upstream)[0].body)["previous_response_id"] == value


def test_what_came_of_an_unknown_id_is_known_from_then_on() -> None:
    with (
        FaultServer({RESPONSES: whole(told("r", 500), told("s", 540))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        posted(proxy, previous_response_id="never heard")
        assert int(context(posted(proxy, previous_response_id="r"))["used"]) > 520


@pytest.mark.parametrize("name", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_is_as_large_as_its_last_response_said(name: Any) -> None:
    with (
        FaultServer({RESPONSES: whole(told("a", 300), told("b", 640))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        found = [context(posted(proxy, conversation=name)) for _ in range(3)]
        (entry,) = proxy.app.ledger.all()
    assert "used" not in found[0]
    assert 320 < int(found[1]["used"]) < 360
    assert 660 < int(found[2]["used"]) < 700
    assert entry.requests == 3


def test_a_stored_prompt_is_what_it_adds_to_a_request_of_each_version() -> None:
    prompt = {"id": "pmpt_1", "version": "2", "variables": {"city": "Ulm"}}
    with (
        FaultServer({RESPONSES: of_json(told("a", 310))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        posted(proxy, prompt=prompt)
        short = context(posted(proxy, prompt={**prompt, "variables": {"city": "Bonn"}}))
        long = context(posted(proxy, prompt=prompt, words=100))
        other = context(posted(proxy, prompt={"id": "pmpt_1"}))
    assert abs(int(short["used"]) - 310) <= 2
    assert 390 < int(long["used"]) < 440
    assert "used" not in other


def test_a_request_without_input_of_its_own_is_what_the_server_holds() -> None:
    with (
        FaultServer({RESPONSES: of_json(told("a", 300, 50))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        posted(proxy)
        found = proxy.post(RESPONSES, {"model": "m", "previous_response_id": "a"})
        text = proxy.post(
            RESPONSES, {"model": "m", "previous_response_id": "a", "input": "hello " * 50}
        )
    assert abs(int(context(found)["used"]) - 350) < 10
    assert 395 < int(context(text)["used"]) < 420


def test_instructions_do_not_come_along_and_new_ones_count() -> None:
    said = "be brief " * 100
    with (
        FaultServer({RESPONSES: whole(told("a", 215), told("b", 245))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        posted(proxy, instructions=said)
        same = context(posted(proxy, previous_response_id="a", instructions=said))
        bare = context(posted(proxy, previous_response_id="a"))
    assert 235 <= int(same["used"]) < 250
    assert 0 < int(bare["used"]) < 60


def test_two_keys_know_nothing_of_each_other() -> None:
    with (
        FaultServer({RESPONSES: of_json(told("a", 500))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        body = talk("openai_responses", stream=False)
        proxy.post(RESPONSES, body, authorization="Bearer one-key-0123456789")
        again = {**body, "previous_response_id": "a"}
        mine = proxy.post(RESPONSES, again, authorization="Bearer one-key-0123456789")
        theirs = proxy.post(RESPONSES, again, authorization="Bearer other-key-0123456789")
    assert "used" in context(mine)
    assert "used" not in context(theirs)


def test_what_is_known_outlives_a_new_configuration_and_a_named_session_keeps_its_name() -> None:
    with (
        FaultServer({RESPONSES: of_json(told("a", 500))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        posted(proxy)
        proxy.app.reload(proxy.app.serve)
        body = talk("openai_responses", stream=False, previous_response_id="a")
        answer = proxy.post(RESPONSES, body, **{"x-ullage-session": "mine"})
        assert "used" in context(answer)
        assert proxy.app.ledger.get("mine") is not None


def test_input_that_nobody_can_read_is_the_servers_to_judge() -> None:
    with (
        FaultServer({RESPONSES: of_json(told("a", 500))}) as upstream,
        proxied(upstream.root_url, rules=RULES) as proxy,
    ):
        body = {"model": "m", "previous_response_id": "a", "input": [7]}
        got = proxy.post(RESPONSES, body)
    assert got.status_code == 200
    assert json.loads(asked(upstream)[0].body) == body
    assert "x-ullage-context" not in got.headers


def test_a_large_part_is_measured_beside_the_event_loop() -> None:
    with (
        FaultServer({RESPONSES: of_json(told("a", 500))}) as upstream,
        proxied(upstream.root_url, rules=(ModelRule(window=100_000),)) as proxy,
    ):
        posted(proxy)
        found = context(posted(proxy, previous_response_id="a", words=20_000))
    assert 20_000 < int(found["used"]) < 24_000


# --- what is kept ---------------------------------------------------------------------------------


def own(total: int = 10, fixed: int = 5) -> Measure:
    return Measure(Size(fixed, fixed, fixed), Size(total, total, total), (), "k", EXACT, "exact")


def test_reasoning_may_or_may_not_come_along() -> None:
    histories = Histories()
    histories.learn(MeasuredRequest("s", "n", own()), told("a", 100, 50, 30))
    held = histories.find("s", (stored.RESPONSE, "a"))
    assert held is not None
    count = held.with_(own(7))
    assert (count.low, count.tokens, count.high) == (127, 127, 157)


def test_a_report_without_usage_teaches_nothing() -> None:
    histories = Histories()
    assert histories.learn(MeasuredRequest("s", "n", own()), {"id": "a"}) is None
    assert histories.find("s", (stored.RESPONSE, "a")) is None


def test_a_response_without_an_id_is_known_by_its_conversation_alone() -> None:
    histories, key = Histories(), (stored.CONVERSATION, "c")
    report = {"usage": {"input_tokens": 9, "output_tokens": 2}}
    assert histories.learn(MeasuredRequest("s", "n", own(), key), report) == Usage(9, output=2)
    held = histories.find("s", key)
    assert held is not None
    assert held.size == Size(11, 11, 11)


def test_the_ids_that_were_heard_of_longest_ago_are_forgotten() -> None:
    histories = Histories(most=2)
    for name in "ab":
        histories.learn(MeasuredRequest("s", name, own()), told(name, 100))
    assert histories.find("s", (stored.RESPONSE, "a")) is not None
    histories.learn(MeasuredRequest("s", "c", own()), told("c", 100))
    assert histories.find("s", (stored.RESPONSE, "b")) is None
    assert histories.find("s", (stored.RESPONSE, "a")) is not None


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, None),
        ({"previous_response_id": None, "conversation": "c"}, ("conversation", "c")),
        ({"previous_response_id": "r", "prompt": {"id": "p"}}, ("previous_response_id", "r")),
        ({"prompt": {"id": "p"}}, ("prompt", "p", "")),
        ({"prompt": {"version": "1"}}, None),
        ({"conversation": 3}, None),
    ],
)
def test_the_history_that_holds_the_others_is_the_one_that_counts(fields: Any, key: Any) -> None:
    assert key_of(fields) == key


def test_conversations_of_which_only_an_id_is_known_are_told_apart() -> None:
    names = {name_of(scope, key) for scope in "ab" for key in (None, ("prompt", "p"))}
    assert len(names) == 4
