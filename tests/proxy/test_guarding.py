"""Requests through the guard: what is edited, what is said of it, what is left alone."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import nullcontext
from typing import Any

import pytest

import ullage
from tests.proxy.serving import (
    CHAT,
    OVERFLOWS,
    PATHS,
    WHOLE,
    asked,
    conversation,
    proxied,
    sent,
    streamed,
    talk,
)
from tests.support.faults import Answer, FaultServer, of_json
from tests.support.waiting import eventually
from ullage.config.serving import ModelRule, Serve, Upstream
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ErrorKind
from ullage.core.guard.events import Notice, TruncationDetected
from ullage.core.tokens.truncation import Truncation
from ullage.proxy import body as bodies
from ullage.proxy import guarding as module
from ullage.proxy import ports, routes
from ullage.proxy.call import ProxyCall
from ullage.proxy.guarding import Guarding, Plan
from ullage.proxy.ledger import Ledger
from ullage.runtime import Runtime
from ullage.sdk.errors import Trouble
from ullage.storage.memory import MemoryStore

DIALECTS = tuple(PATHS)
TIGHT = (ModelRule(window=4096),)
UPSTREAM = Upstream("main", "http://127.0.0.1:9")


def of(serve: Serve | None = None) -> Guarding:
    given = serve or Serve((UPSTREAM,), usage="passive")
    return Guarding(given, Runtime(), MemoryStore(), Ledger())


def call(fields: Any, dialect: str = "openai_chat", **more: Any) -> ProxyCall:
    form = routes.GUARDED[PATHS[dialect]]
    raw = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    given = {"rule": TIGHT[0], "model": "m", "upstream": UPSTREAM, **more}
    return ProxyCall(form, bodies.read(raw, form.fields.messages), **given)


def planned(guarding: Guarding, what: ProxyCall) -> Plan:
    return asyncio.run(guarding.plan(what))


# --- under pressure -------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_that_outgrows_its_window_is_made_to_fit(dialect: str) -> None:
    with (
        FaultServer({PATHS[dialect]: of_json(WHOLE[dialect])}) as upstream,
        proxied(upstream.root_url, rules=TIGHT) as proxy,
    ):
        plain = conversation(dialect, 30, stream=False, temperature=0.70)
        got = proxy.post(PATHS[dialect], plain)
        eventually(lambda: bool(proxy.app.ledger.all()))  # noted behind the answer
        (entry,) = proxy.app.ledger.all()
        assert proxy.shown("ullage_requests_total", outcome="trimmed") == 1
    assert "strategy=" in got.headers["x-ullage-compaction"]
    assert "window=4096" in got.headers["x-ullage-context"]
    (request,) = asked(upstream)
    name = routes.GUARDED[PATHS[dialect]].fields.messages
    made = json.loads(request.body)
    assert len(made[name]) < len(plain[name])
    assert made[name][-1] == plain[name][-1]
    assert {**made, name: []} == {**plain, name: []}
    assert b'"temperature": 0.7' in request.body
    assert (entry.compactions, entry.saved > 0, entry.messages) == (1, True, len(plain[name]))


def test_a_known_prefix_comes_out_in_the_same_bytes_as_the_conversation_goes_on() -> None:
    guarding = of()
    plain = conversation("openai_chat", 30)
    first = planned(guarding, call(plain))
    again = planned(guarding, call(plain))
    longer = [*plain["messages"], {"role": "assistant", "content": "yes"}]
    longer.append({"role": "user", "content": "and now?"})
    later = planned(guarding, call({**plain, "messages": longer}))
    assert first.body == again.body
    history = bodies.read(first.body, "messages").slices
    followed = bodies.read(later.body, "messages").slices
    assert history is not None
    assert followed is not None
    assert followed[: len(history)] == history
    assert len(followed) == len(history) + 2


def test_messages_that_stay_are_sent_as_they_were_written() -> None:
    plain = conversation("openai_chat", 30)
    plain["messages"][-1]["content"] = "é\u2028 ok"
    raw = json.dumps(plain, separators=(" ,", " :")).encode()
    was = bodies.read(raw, "messages").slices
    now = bodies.read(planned(of(), call(raw)).body, "messages").slices
    assert was is not None
    assert now is not None
    assert now[-3:] == was[-3:]


@pytest.mark.parametrize(
    ("dialect", "field"),
    [("openai_chat", "max_tokens"), ("openai_chat", "max_completion_tokens"),
     ("openai_responses", "max_output_tokens"), ("anthropic", "max_tokens")],
)  # fmt: skip
def test_an_answer_larger_than_the_room_is_lowered_and_said_to_be(dialect: str, field: str) -> None:
    plain = {**talk(dialect), field: 100_000}
    plan = planned(of(), call(plain, dialect))
    told = dict(plan.headers)[b"x-ullage-output"].decode()
    limit = json.loads(plan.body)[field]
    assert told == f"max_tokens={limit}; asked=100000"
    assert 1024 <= limit < 4096
    assert plan.body == json.dumps(plain).encode().replace(b"100000", str(limit).encode())


def test_the_limit_of_ollamas_answer_is_lowered_inside_its_options() -> None:
    plain = {**talk("ollama_chat"), "options": {"seed": 1, "num_predict": 100_000}}
    plan = planned(of(), call(plain, "ollama_chat"))
    options = json.loads(plan.body)["options"]
    assert options["seed"] == 1
    assert 1024 <= options["num_predict"] < 4096
    assert b"x-ullage-output" in dict(plan.headers)


def test_the_operators_num_ctx_is_the_window_that_is_counted_with() -> None:
    guarding = of(Serve((UPSTREAM,), num_ctx=2048))
    plan = planned(guarding, call(talk("ollama_chat"), "ollama_chat", rule=ModelRule()))
    assert b"window=2048" in dict(plan.headers)[b"x-ullage-context"]
    assert json.loads(plan.body)["options"] == {"num_ctx": 2048}


@pytest.mark.parametrize("most", [0, -1, 1.5, True, None, "9"])
def test_a_limit_that_is_none_is_left_alone(most: Any) -> None:
    plain = talk("openai_chat", max_tokens=most)
    assert planned(of(), call(plain)).body == json.dumps(plain).encode()


def test_a_rule_that_observes_measures_and_changes_nothing() -> None:
    plain = {**conversation("openai_chat", 30), "max_tokens": 100_000}
    plan = planned(of(), call(plain, rule=ModelRule(window=4096, observe=True)))
    assert plan.body == json.dumps(plain).encode()
    assert b"used=" in dict(plan.headers)[b"x-ullage-context"]
    assert [name for name, _ in plan.headers] == [b"x-ullage-context"]


def test_a_policy_that_is_off_sends_what_came() -> None:
    plain = conversation("openai_chat", 30)
    rule = ModelRule(window=4096, policy=Policy.off())
    assert planned(of(), call(plain, rule=rule)).body == json.dumps(plain).encode()


def test_two_credentials_never_share_a_conversation() -> None:
    guarding = of()
    plain = conversation("openai_chat", 30)
    one = planned(guarding, call(plain, credential="one"))
    other = planned(guarding, call(plain, credential="other"))
    mine = planned(guarding, call(plain, credential="one", session="mine"))
    views = [plan.view for plan in (one, other, mine)]
    made = [view.prepared.checkpoint for view in views if view is not None]
    assert len({checkpoint.scope for checkpoint in made if checkpoint is not None}) == 3


# --- what is left alone ---------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["previous_response_id", "conversation", "prompt"])
def test_a_history_that_lives_on_the_server_is_forwarded_unedited(field: str) -> None:
    plain = {**conversation("openai_responses", 30), field: "x"}
    plan = planned(of(), call(plain, "openai_responses"))
    context = (b"x-ullage-context", b"window=4096; tier=unavailable")
    assert (plan.body, plan.view, plan.headers) == (json.dumps(plain).encode(), None, (context,))


@pytest.mark.parametrize(
    "raw",
    [b"{nonsense", b"[]", b'{"messages": []}', b'{"messages": "x"}', b'{"messages": [1, 2]}',
     b'{"messages": [{"role": 7}]}', b'{"messages": [{"role": "user", "content": {"a": 1}}]}'],
)  # fmt: skip
def test_what_is_no_conversation_is_the_upstreams_to_judge(raw: bytes) -> None:
    assert planned(of(), call(raw)).body == raw


def test_a_large_body_is_guarded_like_a_small_one() -> None:
    plain = conversation("openai_chat", 120)
    raw = json.dumps(plain).encode()
    assert len(raw) > module.SMALL
    with (
        FaultServer({CHAT: streamed("openai_chat")}) as upstream,
        proxied(upstream.root_url, rules=TIGHT) as proxy,
    ):
        got = proxy.post(CHAT, raw)
    assert got.content == sent(streamed("openai_chat"))
    assert len(asked(upstream)[0].body) < len(raw)


def test_a_guard_that_takes_too_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0)
    plain = conversation("openai_chat", 120)  # long enough for a thread of its own
    with caplog.at_level(logging.CRITICAL):
        plan = planned(of(), call(plain))
    assert (plan.body, plan.fault) == (json.dumps(plain).encode(), "TimeoutError")


def test_guards_that_were_not_used_for_long_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "MOST_GUARDS", 2)
    guarding = of()
    plans = [planned(guarding, call(talk("openai_chat"), model=name)) for name in "abcab"]
    assert len({id(plan.port) for plan in plans}) == 5
    held = planned(guarding, call(talk("openai_chat"), model="b"))
    assert held.port is plans[-1].port


# --- servers that cut in silence ------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "ollama_chat"])
def test_what_a_server_would_cut_in_silence_is_refused_in_words_that_clients_know(
    dialect: str,
) -> None:
    quiet = Upstream("quiet", "http://127.0.0.1:9", server="ollama")
    plain = talk(dialect, words=6000)
    with (
        FaultServer({}) as upstream,
        proxied(
            "", upstreams=(Upstream("quiet", upstream.base_url, server="ollama"),), rules=TIGHT
        ) as proxy,
    ):
        got = proxy.post(PATHS[dialect], plain)
        assert proxy.shown("ullage_requests_total", outcome="blocked") == 1
    assert (got.status_code, got.headers["x-ullage-error"]) == (400, "context_too_large")
    assert "4096" in got.text
    assert not asked(upstream)
    guarding = of(Serve((quiet,)))
    seen = call(plain, dialect, upstream=quiet, rule=ModelRule(window=4096, observe=True))
    assert guarding.cut_in_silence(seen, planned(guarding, seen)) is None


def test_what_any_other_server_would_refuse_is_sent() -> None:
    error = of_json(OVERFLOWS["openai_chat"], 400)
    with (
        FaultServer({CHAT: error}) as upstream,
        proxied(upstream.root_url, rules=TIGHT) as proxy,
    ):
        got = proxy.post(CHAT, talk("openai_chat", words=6000))
    assert (got.status_code, got.content) == (400, sent(error))
    assert "x-ullage-error" not in got.headers


def test_nothing_is_known_of_a_request_that_no_guard_saw() -> None:
    guarding, seen = of(), call(b"{nonsense")
    plan = planned(guarding, seen)
    assert guarding.cut_in_silence(seen, plan) is None
    guarding.note(seen, plan, 200)
    asyncio.run(guarding.learn(plan, {"usage": {}}))
    guarding.learn_refusal(plan, 400, {})


# --- after a failure ------------------------------------------------------------------------------


def test_a_request_that_no_guard_saw_is_sent_again_only_where_the_connection_broke() -> None:
    guarding, seen = of(), call(b"{nonsense")
    plan = planned(guarding, seen)
    lost = Trouble(ErrorKind("other"), lost=True)
    assert asyncio.run(guarding.again(seen, plan, lost)) is plan
    assert asyncio.run(guarding.again(seen, plan, Trouble(ErrorKind("input")))) is None


@pytest.mark.parametrize("report", [7, {"usage": {"prompt_tokens": []}}, {"usage": {"x": "y"}}, []])
def test_a_report_that_makes_no_sense_teaches_nothing(report: Any) -> None:
    guarding, seen = of(), call(talk("openai_chat"))
    asyncio.run(guarding.learn(planned(guarding, seen), report))


def test_an_answer_whose_lesson_fails_is_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Deaf:
        async def aobserve(self, report: Any) -> None:
            raise LookupError(report)

    view: Any = Deaf()
    with caplog.at_level(logging.CRITICAL):
        asyncio.run(of().learn(Plan(b"", view), {"usage": {}}))
    strict = of(Serve((UPSTREAM,), fail_open=False))
    with pytest.raises(LookupError):
        asyncio.run(strict.learn(Plan(b"", view), {"usage": {}}))


def test_a_server_that_cut_a_prompt_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    plan = planned(of(), call(talk("openai_chat")))
    assert plan.port is not None
    with caplog.at_level(logging.WARNING):
        plan.port.tell(TruncationDetected(Truncation(("short", "at_half"), 1025, 5000, 1024)))
        plan.port.tell(Notice("of no interest to an operator"))
    (line,) = caplog.messages
    assert "cut a prompt in silence" in line


EMPTY = Answer(400, (b"",))
"""What Cerebras answers to a prompt that is too large, and others to anything."""


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("second", [EMPTY, of_json({"error": "busy"}, 503)])
def test_a_recovery_that_did_not_help_is_taken_back(dialect: str, second: Answer) -> None:
    body, rules = conversation(dialect, 38, stream=False), (ModelRule(window=32_768),)
    with (
        FaultServer({PATHS[dialect]: (EMPTY, second, of_json(WHOLE[dialect]))}) as upstream,
        proxied(upstream.root_url, rules=rules) as proxy,
    ):
        assert proxy.post(PATHS[dialect], body).status_code == second.status
        assert proxy.post(PATHS[dialect], body).status_code == 200
    name = routes.GUARDED[PATHS[dialect]].fields.messages
    sizes = [len(json.loads(request.body)[name]) for request in asked(upstream)]
    assert sizes[1] < sizes[0] == sizes[2] == len(body[name])


def test_a_recovery_is_taken_back_where_the_upstream_is_gone() -> None:
    guarding, seen = of(), call(conversation("openai_chat", 38), rule=ModelRule(window=32_768))
    whole = planned(guarding, seen)
    empty = Trouble(ErrorKind("input", certainty="likely"))
    smaller = asyncio.run(guarding.again(seen, whole, empty))
    assert smaller is not None
    assert planned(guarding, seen).body == smaller.body
    asyncio.run(guarding.take_back(smaller))
    assert planned(guarding, seen).body == whole.body
    asyncio.run(guarding.take_back(Plan(b"")))


@pytest.mark.parametrize("fail_open", [False, True])
def test_a_store_that_breaks_while_a_recovery_is_taken_back(
    fail_open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    serve = Serve((UPSTREAM,), usage="passive", fail_open=fail_open)
    store = MemoryStore()
    guarding = Guarding(serve, Runtime(), store, Ledger())
    seen = call(conversation("openai_chat", 38), rule=ModelRule(window=32_768))
    empty = Trouble(ErrorKind("input", certainty="likely"))
    smaller = asyncio.run(guarding.again(seen, planned(guarding, seen), empty))
    assert smaller is not None
    store.checkpoints = Broken()  # type: ignore[assignment]  # a store that fails
    with nullcontext() if fail_open else pytest.raises(OSError, match="disk"):
        asyncio.run(guarding.take_back(smaller))
    assert ("could not be taken back" in caplog.text) == fail_open


class Broken:
    """Checkpoints on a disk that is gone."""

    def undo(self, _: object) -> bool:
        raise OSError("the disk is gone")


# --- a broken history -----------------------------------------------------------------------------


def work(flaw: str, turns: int) -> list[dict[str, Any]]:
    """Return an agent's history in Chat Completions with one flaw early on."""
    made: list[dict[str, Any]] = [{"role": "user", "content": "Mend the build."}]
    for turn in range(turns):
        named = {"name": "read", "arguments": json.dumps({"path": f"{turn}.txt"})}
        one = {"id": f"c{turn}", "type": "function", "function": named}
        result = {"role": "tool", "tool_call_id": f"c{turn}", "content": "some words of it\n" * 90}
        made += [{"role": "assistant", "content": None, "tool_calls": [one]}, result]
    if flaw == "interrupted":
        made[6] = {"role": "user", "content": "Stop, not that one."}
    elif flaw == "twice":
        made[5] = {**made[5], "tool_calls": made[5]["tool_calls"] * 2}
        made.insert(7, dict(made[6]))
    elif flaw == "orphan":
        made.insert(7, {"role": "tool", "tool_call_id": "zz", "content": "x"})
    return [*made, {"role": "user", "content": "And now?"}]


FLAWS = ("interrupted", "twice", "orphan")


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_broken_history_is_compacted_where_it_is_too_large(flaw: str) -> None:
    guarding = of()
    fields = {"model": "m", "max_tokens": 200, "messages": work(flaw, 20)}
    plan = planned(guarding, call(fields))
    made = json.loads(plan.body)
    assert b"strategy=" in dict(plan.headers)[b"x-ullage-compaction"]
    assert made["max_tokens"] == 200
    assert int(ullage.count(made["messages"], model="gpt-4o")) < 4096
    assert not ullage.repair(made["messages"]).repairs
    assert made["messages"][-1]["content"] == "And now?"
    assert planned(guarding, call(fields)).body == plan.body
    longer = work(flaw, 20)
    longer.append({"role": "assistant", "content": "Done."})
    longer.append({"role": "user", "content": "And then?"})
    later = json.loads(planned(guarding, call({**fields, "messages": longer})).body)["messages"]
    assert later[: len(made["messages"])] == made["messages"]


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_broken_history_that_fits_is_the_upstreams_to_judge(flaw: str) -> None:
    fields = {"model": "m", "max_tokens": 200, "messages": work(flaw, 4)}
    seen = call(fields, rule=ModelRule(window=100_000))
    assert planned(of(), seen).body == json.dumps(fields).encode()


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_broken_history_is_made_smaller_where_a_server_refuses_its_size(flaw: str) -> None:
    guarding = of()
    fields = {"model": "m", "max_tokens": 200, "messages": work(flaw, 20)}
    seen = call(fields, rule=ModelRule(window=100_000))
    whole = planned(guarding, seen)
    assert whole.body == json.dumps(fields).encode()
    limit = Trouble(ErrorKind("input", limit=4096, input_tokens=9_000, certainty="certain"))
    smaller = asyncio.run(guarding.again(seen, whole, limit))
    assert smaller is not None
    made = json.loads(smaller.body)["messages"]
    assert int(ullage.count(made, model="gpt-4o")) < 4096
    assert not ullage.repair(made).repairs


@pytest.mark.parametrize("turns", [12, 20])
def test_results_whose_calls_stand_at_the_server_all_go_out(turns: int) -> None:
    said = [item for n in range(turns) for item in (
        {"type": "item_reference", "id": f"fc_{n}"},
        {"type": "function_call_output", "call_id": f"c{n}", "output": "some words of it " * 90},
    )]  # fmt: skip
    fields = {"model": "m", "input": [{"role": "user", "content": "Mend the build."}, *said]}
    assert planned(of(), call(fields, "openai_responses")).body == json.dumps(fields).encode()


# --- thinking beside a lowered answer -------------------------------------------------------------


def test_a_budget_of_thinking_is_lowered_with_the_answer_that_holds_it() -> None:
    thinking = {"type": "enabled", "budget_tokens": 9_999}
    plain = {**talk("anthropic"), "max_tokens": 10_000, "thinking": thinking}
    seen = call(plain, "anthropic", rule=ModelRule(window=8_192))
    made = json.loads(planned(of(), seen).body)
    assert made["thinking"] == {"type": "enabled", "budget_tokens": 4_999}
    assert made["thinking"]["budget_tokens"] < made["max_tokens"] < 8_192


def test_an_answer_keeps_its_limit_where_nothing_makes_the_request_fit() -> None:
    plain = talk("openai_chat", max_tokens=500)
    plain["messages"] = [{"role": "user", "content": "what of this? " * 3_000}]
    made = json.loads(planned(of(), call(plain)).body)
    assert made["max_tokens"] == 500
