"""Turns of an agent over HTTP: what is recorded, sent, recovered from, refused and told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import (
    QUICK,
    agent,
    bodies,
    broken,
    called,
    data,
    overflow,
    said,
    scripted,
    types,
)
from tests.support.faults import FaultServer, hanging, of_json
from ullage.agent import Agent, Live, Session
from ullage.agent.keeping import Place, SessionStore
from ullage.core.compaction.policy import Policy
from ullage.core.errors import BusyWriter, ConfigurationError, ContextWindowUnknown, Fenced
from ullage.core.session.log.event import Draft, Event
from ullage.core.session.permissions import Rule
from ullage.core.session.skills import Skill, hash_text
from ullage.core.tokens.budget import TurnBudget
from ullage.guard.guard import Guard
from ullage.providers import Provider
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "cellar.txt").write_text("seven casks\n")
    return folder


def test_a_plain_answer_is_four_events_and_streams(session: Session):
    live: list[Live] = []
    session.hear(lambda event: live.append(event) if isinstance(event, Live) else None)
    with scripted(said("Seven casks.")) as server:
        done = agent(server).run(session, "What is in the cellar?")
    assert done.ok
    assert done.text == "Seven casks."
    assert types(session) == [
        *("user_message", "turn_started", "provider_usage", "assistant_message"),
        "turn_completed",
    ]
    assert "".join(e.data["text"] for e in live if e.type == "text_delta") == "Seven casks."
    assert any(e.type == "context_pressure" for e in live)


def test_a_tool_is_recorded_run_and_its_result_sent(session: Session, workspace: Path):
    script = (called(("read", {"path": "cellar.txt"}), text="I look."), said("Seven casks."))
    with scripted(*script) as server:
        done = agent(server, workspace).run(session, "What is in the cellar?")
        second = bodies(server)[1]["messages"]
    assert done.ok
    assert types(session)[2:] == [
        *("provider_usage", "assistant_message", "tool_call", "tool_result"),
        *("provider_usage", "assistant_message", "turn_completed"),
    ]
    assert second[-2]["tool_calls"][0]["function"]["name"] == "read"
    assert second[-1]["role"] == "tool"
    assert "seven casks" in second[-1]["content"]


def test_history_is_the_same_live_and_resumed(session: Session, workspace: Path):
    script = (called(("read", {"path": "cellar.txt"})), said("Seven."), said("Yes."), said("Yes."))
    with scripted(*script) as server:
        runner = agent(server, workspace)
        runner.run(session, "Count")
        runner.run(session, "Sure?")
        session.close()
        fork = session.fork(session.fold.head - 5)
        with fork:
            agent(server, workspace).run(fork, "Sure?")
        sent = bodies(server)
    assert sent[3]["messages"][1:] == sent[2]["messages"][1:]
    assert session.name in sent[3]["messages"][0]["content"]


def test_secrets_reach_neither_log_nor_model(
    session: Session, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SENTINEL_API_KEY", "sk-sentinel-42")
    (workspace / "env").write_text("key=sk-sentinel-42\n")
    script = (called(("read", {"path": "env"})), said("It is sk-sentinel-42."), said("ok"))
    with scripted(*script) as server:
        runner = agent(server, workspace)
        done = runner.run(session, "Read env")
        runner.run(session, "again")
        sent = json.dumps(bodies(server))
    assert done.ok
    assert "sk-sentinel-42" not in sent
    assert all("sk-sentinel-42" not in e.text for e in session.events())


def test_an_overflow_is_recovered_from_and_recorded(session: Session):
    talk(session, 60)
    with scripted(overflow(8_000, 9_000), said("Done.")) as server:
        done = agent(server, window=None).run(session, "Go on")
        first, second = bodies(server)
    assert done.ok
    made = data(session, "history_compaction")
    assert len(made) == 1
    assert made[0]["checkpoint"]["trigger"] == "overflow_recovery"
    first_event, last_event = made[0]["events"]
    assert 1 < first_event < last_event < session.fold.head
    assert len(second["messages"]) < len(first["messages"])
    assert types(session).index("history_compaction") < types(session).index("provider_usage")


def test_refusals_without_end_are_a_few_smaller_tries_one_notice_and_the_error(session: Session):
    talk(session, 60)
    told: list[str] = []
    session.hear(lambda e: told.append(e.data["text"]) if e.type == "status" else None)
    refusals = [overflow(limit, 9_000) for limit in (8_000, 7_500, 7_000, 6_500, 6_000, 5_500)]
    with scripted(*refusals) as server:
        done = agent(server, window=None).run(session, "Go on")
        sizes = [len(json.dumps(body["messages"])) for body in bodies(server)]
    assert (done.ok, done.reason) == (False, "context_overflow")
    assert 2 <= len(sizes) <= 5
    assert sizes == sorted(set(sizes), reverse=True)
    assert sum("RecoveryExhausted" in text for text in told) == 1


def test_a_notice_of_pressure_names_the_command_that_looks_first(session: Session):
    talk(session, 30)
    told: list[str] = []
    session.hear(lambda e: told.append(e.data["text"]) if e.type == "status" else None)
    with scripted(said("a")) as server:
        agent(server, window=2_500).run(session, "hello")
    (notice,) = [text for text in told if "Context window at" in text]
    assert notice.endswith(f"Look first: ullage compact {session.name} --dry-run")


def test_a_broken_stream_is_asked_again_and_its_text_kept(session: Session):
    with scripted(broken("Seven c"), said("Seven casks.")) as server:
        done = agent(server).run(session, "What is in the cellar?")
        assert len(bodies(server)) == 2
    assert done.text == "Seven casks."
    partial = data(session, "assistant_message")[0]
    assert (partial["text"], partial["partial"]) == ("Seven c", True)


def test_a_server_that_falls_silent_ends_the_turn_with_commands(session: Session):
    with scripted(hanging()) as server:
        provider = Provider("model", server.base_url, limits=QUICK)
        slow = Agent(provider, window=8_000)
        done = slow.run(session, "hello")
        assert len(bodies(server)) == 1
    assert done.reason == "stalled"
    assert data(session, "turn_failed")[0]["commands"] == [
        "ullage show s",
        "ullage resume s",
        "ullage resume s TEXT",
    ]


def test_a_plain_refusal_is_the_turns_failure(session: Session):
    error = {"error": {"message": "no such model", "type": "not_found_error"}}
    with scripted(of_json(error, 404)) as server:
        done = agent(server).run(session, "hello")
    assert done.reason == "provider_error"
    assert "no such model" in done.error


def test_plan_mode_writes_nothing_whatever_the_model_asks(session: Session, workspace: Path):
    script = (
        called(("write", {"path": "a.txt", "content": "x"}), ("shell", {"command": "touch a.txt"})),
        said("I would write a.txt."),
    )
    with scripted(*script) as server:
        done = agent(server, workspace).run(session, "Write", mode="plan")
        offered = {t["function"]["name"] for t in bodies(server)[0]["tools"]}
        told = bodies(server)[1]["messages"][-2:]
    assert (done.ok, done.text) == (True, "I would write a.txt.")
    assert [m["role"] for m in told] == ["tool", "tool"]
    assert all("describe the change in the plan" in m["content"] for m in told)
    assert not (workspace / "a.txt").exists()
    assert not offered & {"write", "edit", "shell"}
    assert data(session, "permission_decision")[0]["by"] == "mode"


@pytest.mark.parametrize("word", [True, False])
def test_a_person_is_asked_and_decides(session: Session, workspace: Path, word: bool):
    script = (called(("write", {"path": "a.txt", "content": "x"})), said("done"))

    async def ask(call: Any, reason: str) -> bool:
        return word and bool(reason) and call.name == "write"

    with scripted(*script) as server:
        done = agent(server, workspace).run(session, "Write", permission="ask", ask=ask)
    assert done.ok
    assert (workspace / "a.txt").exists() is word


def test_a_write_policy_holds_whatever_the_permission(session: Session, workspace: Path):
    script = (called(("write", {"path": "src/a.py", "content": "x"})), said("never"))
    with scripted(*script) as server:
        runner = agent(server, workspace, writes=[Rule("src/**", "deny")])
        done = runner.run(session, "Write")
    assert done.reason == "permission_denied"
    assert data(session, "permission_decision")[0]["by"] == "policy"


def test_the_log_is_out_of_reach_of_tools(tmp_path: Path, workspace: Path):
    log = SqliteLog(workspace / ".ullage" / "log.db")
    script = (called(("read", {"path": ".ullage/log.db"})), said("never"))
    with Session.create(log, "s") as session, scripted(*script) as server:
        done = agent(server, workspace).run(session, "Read")
        assert done.reason == "permission_denied"
        assert data(session, "permission_decision")[0]["by"] == "state"
    log.close()


def test_a_log_in_the_workspace_itself_is_refused_before_anything_runs(workspace: Path):
    log = SqliteLog(workspace / "log.db")
    with Session.create(log, "s") as session, scripted(said("never")) as server:
        with pytest.raises(ConfigurationError, match="folder of its own"):
            agent(server, workspace).run(session, "Read")
        assert bodies(server) == []
    log.close()


def test_a_dry_run_changes_nothing_and_says_so(session: Session, workspace: Path):
    script = (called(("write", {"path": "a.txt", "content": "x"})), said("done"))
    with scripted(*script) as server:
        done = agent(server, workspace).run(session, "Write", dry_run=True)
    assert done.ok
    assert not (workspace / "a.txt").exists()
    assert data(session, "tool_result")[0]["marks"]["dry_run"] is True
    assert data(session, "turn_started")[0]["dry_run"] is True


def test_a_cap_of_two_runs_one_tool_and_is_no_success(session: Session, workspace: Path):
    look = called(("list", {}))
    with scripted(look, look, look) as server:
        done = agent(server, workspace).run(session, "Look", max_iterations=2)
        assert len(bodies(server)) == 2
    assert (done.ok, done.reason) == (False, "iteration_cap")
    assert len(data(session, "tool_call")) == 1


def test_a_budget_ends_the_turn_before_the_call(session: Session):
    with scripted(said("never")) as server:
        done = agent(server).run(session, "hello", budget=TurnBudget(tokens=10))
        assert bodies(server) == []
    assert done.reason == "budget"


def test_presented_facts_stand_beside_the_request_and_in_no_event(session: Session):
    with scripted(said("a"), said("b")) as server:
        runner = agent(server)
        runner.run(session, "one", presenter_context={"open_file": "a.py"})
        runner.run(session, "two", presenter_context={"open_file": "b.py"})
        first, second = (body["messages"] for body in bodies(server))
    assert "a.py" in first[-1]["content"]
    assert first[-1]["content"].startswith("one")
    assert second[:1] == first[:1]
    assert second[1]["content"] == "one"
    assert "b.py" in second[-1]["content"]
    assert all("a.py" not in e.text for e in session.events())


def test_a_named_skill_is_activated_once_and_read(session: Session):
    text = "Always count casks twice."
    skill = Skill("cellar", "how to count", hash_text(text), text)
    with scripted(said("a"), said("b")) as server:
        runner = agent(server, skills=[skill])
        runner.run(session, "use $cellar please")
        runner.run(session, "and $cellar again")
        sent = bodies(server)[1]["messages"]
    assert len(data(session, "skill_activation")) == 1
    assert sum(text in str(m["content"]) for m in sent) == 1
    assert "cellar: how to count" in sent[0]["content"]


def test_options_go_to_the_provider_untouched_and_the_limit_is_clamped(session: Session):
    with scripted(said("a")) as server:
        options = {"temperature": 0.25, "max_tokens": 100_000, "x_own": {"a": 1}}
        agent(server).run(session, "hello", provider_options=options)
        body = bodies(server)[0]
    assert (body["temperature"], body["x_own"]) == (0.25, {"a": 1})
    assert body["max_tokens"] < 8_000


# ── interrupts, one at a time ───────────────────────────────────────────────────────────────────


def test_an_interrupted_turn_keeps_what_had_come_and_the_session_goes_on(session: Session):
    async def interrupt() -> None:
        with scripted(broken("never"), said("Here.")) as server:
            slow = agent(server)
            came = asyncio.Event()
            session.hear(lambda e: came.set() if e.type == "text_delta" else None)
            task = slow.start(session, "hello")
            await came.wait()
            with pytest.raises(BusyWriter, match="under way"):
                slow.start(session, "again")
            with pytest.raises(BusyWriter, match="under way"):
                await slow.arun(session, "again")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert types(session)[-1] == "turn_interrupted"
            assert data(session, "assistant_message")[0]["partial"] is True
            assert (await slow.arun(session, "again")).ok

    asyncio.run(interrupt())


def test_a_crash_of_the_driver_is_a_failed_turn(session: Session, workspace: Path):
    def crash(*_: Any) -> bool:
        raise ZeroDivisionError("a host's fault")

    script = (called(("write", {"path": "a.txt", "content": "x"})), said("never"))
    with scripted(*script) as server:
        done = agent(server, workspace).run(session, "Write", permission="ask", ask=crash)
    assert (done.ok, done.reason) == (False, "crashed")
    assert "ZeroDivisionError" in done.error
    assert session.fold.turn is None
    assert not session.fold.open_calls


def test_a_writer_that_was_taken_over_stops_at_once(session: Session, workspace: Path):
    def steal(event: Any) -> None:
        if isinstance(event, Event) and event.type == "tool_call":
            log, lease = session.log, session.acquire()
            log.release("s", lease.epoch, 1.0)
            log.acquire("s", lease.owner, 2.0)

    session.hear(steal)
    script = called(("write", {"path": "a.txt", "content": "x"}))
    with scripted(script) as server, pytest.raises(Fenced):
        agent(server, workspace).run(session, "Write")
    assert not (workspace / "a.txt").exists()
    assert types(session)[-1] == "tool_call"


def test_resuming_where_nothing_was_cut_off_is_nothing(session: Session):
    with scripted(said("a")) as server:
        assert agent(server).resume(session) is None


def test_a_turn_that_was_cut_off_goes_on(session: Session, workspace: Path):
    session.record(
        [
            Draft("user_message", {"text": "Count"}),
            Draft("turn_started", {"turn": "t0"}),
            Draft("provider_usage", {"model": "model", "round": 1}),
            *(
                Draft(
                    "tool_call",
                    {
                        "call_id": name,
                        "name": name,
                        "arguments": arguments,
                        "model": "model",
                        "round": 1,
                        "key": f"t0-1-{name}",
                        "idempotent": name == "read",
                    },
                )
                for name, arguments in (
                    ("read", '{"path": "cellar.txt"}'),
                    ("edit", '{"path": "cellar.txt", "old": "seven", "new": "six"}'),
                )
            ),
        ]
    )
    with scripted(said("Seven.")) as server:
        done = agent(server, workspace).resume(session)
        sent = bodies(server)[0]["messages"]
    assert done is not None
    assert done.ok
    results = {m["tool_call_id"]: m["content"] for m in sent if m["role"] == "tool"}
    assert "seven casks" in results["read"]
    assert results["edit"].startswith("orphan_tool_call")
    assert (workspace / "cellar.txt").read_text() == "seven casks\n"


# ── between turns ───────────────────────────────────────────────────────────────────────────────


def talk(session: Session, turns: int = 30) -> None:
    for n in range(turns):
        session.record([Draft("user_message", {"text": f"question {n} " + "word " * 40})])
        session.record([Draft("assistant_message", {"text": f"answer {n}", "model": "model"})])


def test_a_dry_compaction_and_a_look_record_nothing(session: Session):
    talk(session)
    head = session.fold.head
    with scripted(said("a")) as server:
        runner = agent(server)
        dry = asyncio.run(runner.acompact(session, target_tokens=1_500, dry_run=True))
        view = asyncio.run(runner.aview(session))
        assert bodies(server) == []
    assert dry.checkpoint is not None
    assert session.fold.head == head
    assert len(view.messages) == 61


def test_a_compaction_by_hand_holds_and_can_be_taken_back(session: Session):
    talk(session)
    with scripted(said("a"), said("b")) as server:
        runner = agent(server)
        done = asyncio.run(runner.acompact(session, target_tokens=1_500))
        assert done.checkpoint is not None
        runner.run(session, "go on")
        again = agent(server)
        again.run(session, "and on")
        sizes = [len(body["messages"]) for body in bodies(server)]
        assert max(sizes) < 40
        assert len(data(session, "history_compaction")) == 1
        assert again.uncompact(session) is not None
        assert len(asyncio.run(again.aview(session)).messages) == 65
        assert again.uncompact(session) is None
    assert session.fold.checkpoints == []


@pytest.mark.parametrize("target", [0, -1, 1.5])
def test_a_senseless_target_is_refused(session: Session, target: Any):
    with scripted(said("a")) as server, pytest.raises(ConfigurationError, match="1 token"):
        asyncio.run(agent(server).acompact(session, target_tokens=target))


def test_a_share_of_an_unknown_window_is_refused(session: Session):
    with scripted(said("a")) as server, pytest.raises(ContextWindowUnknown):
        asyncio.run(agent(server, window=None).acompact(session))


def test_a_summary_begins_a_linked_session(session: Session):
    talk(session, 4)
    with scripted(said("a")) as server:
        runner = agent(server)
        made = asyncio.run(runner.asummarise(session))
        with made:
            runner.run(made, "go on")
        sent = bodies(server)[0]["messages"]
    assert made.events()[1].data["parent"] == session.name
    assert data(session, "subagent_event")[0]["continued_in"] == made.name
    assert "question 3" in sent[1]["content"]
    assert sent[-1]["content"] == "go on"


def test_nothing_cannot_be_summarised(session: Session):
    with scripted(said("a")) as server, pytest.raises(ConfigurationError, match="to summarise"):
        asyncio.run(agent(server).asummarise(session))


def test_another_model_is_told_and_its_smaller_window_compacts_first(session: Session):
    talk(session, 60)
    session.record([Draft("provider_usage", {"model": "model", "input": 3_000})])
    told: list[str] = []
    session.hear(lambda e: told.append(e.data["text"]) if e.type == "status" else None)
    with scripted(said("a")) as server:
        other = Provider("other", server.base_url, limits=QUICK, window=4_000)
        agent(server).run(session, "hello", provider=other)
        assert bodies(server)[0]["model"] == "other"
    made = data(session, "history_compaction")
    assert made[0]["checkpoint"]["trigger"] == "model_switch"
    assert any("now it is other" in text for text in told)


def test_left_out_results_are_read_back_by_the_recall_tool(session: Session, workspace: Path):
    text = "line of a long file\n" * 300
    (workspace / "long.txt").write_text(text)
    script = [called(("read", {"path": "long.txt"}), prompt=n) for n in (51, 52, 53)]
    with scripted(*script, said("Done."), said("ok")) as server:
        runner = agent(server, workspace, window=6_000)
        runner.run(session, "Read it three times")
        runner.run(session, "and now?")
        sent = json.dumps(bodies(server)[-1]["messages"])
    assert data(session, "history_compaction")
    name = sent.partition("u:")[2][:16]
    found = session.originals.read(f"u:{name}")
    assert found is not None
    assert "line of a long file" in found
    assert session.originals.read("u:0123456789abcdef") is None


# ── bad input ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["", "  \n", None, 3])
def test_saying_nothing_is_refused(session: Session, text: Any):
    with scripted(said("a")) as server, pytest.raises(ConfigurationError, match="begins with"):
        agent(server).run(session, text)


@pytest.mark.parametrize("most", [0, -1, "3", 1.5])
def test_a_senseless_cap_is_refused(session: Session, most: Any):
    with scripted(said("a")) as server, pytest.raises(ConfigurationError, match="max_iterations"):
        agent(server).run(session, "hello", max_iterations=most)


def test_unknown_options_are_refused_by_name(session: Session):
    with scripted(said("a")) as server:
        with pytest.raises(TypeError, match="max_iteration'"):
            agent(server).run(session, "hello", max_iteration=3)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="skils"):
            agent(server, skils=[])
        with pytest.raises(ConfigurationError, match="mode"):
            agent(server).run(session, "hello", mode="paint")  # type: ignore[arg-type]


def test_blocking_inside_a_loop_names_the_twin(session: Session):
    async def inside() -> None:
        with scripted(said("a")) as server, pytest.raises(ConfigurationError, match="async twin"):
            agent(server).run(session, "hello")

    asyncio.run(inside())


def test_sessions_in_memory_work_alike():
    with Session.create(MemoryLog()) as session, scripted(said("a")) as server:
        assert agent(server).run(session, "hello").ok


def test_a_policy_may_go_on_in_a_new_linked_session(session: Session):
    policy = Policy.auto_summary(new_session=True)
    with scripted(said("a", 100), said("b", 7_700), said("c")) as server:
        runner = agent(server, policy=policy)
        assert runner.run(session, "one").continued == ""
        done = runner.run(session, "two")
        with Session(session.log, done.continued) as made:
            assert runner.run(made, "three").ok
        sent = bodies(server)[-1]["messages"]
    assert "two" in sent[1]["content"]
    assert data(session, "subagent_event")[0]["continued_in"] == done.continued


def test_a_guard_alone_begins_no_sessions():
    with pytest.raises(ConfigurationError, match=r"ullage\.Agent"):
        Guard("gpt-4o", policy=Policy.auto_summary(new_session=True))


def test_a_resumed_turn_may_do_no_more_than_when_it_began(session: Session, workspace: Path):
    begun = {"turn": "t0", "mode": "plan", "permission": "ask", "dry_run": True}
    session.record([Draft("user_message", {"text": "Plan"}), Draft("turn_started", begun)])
    script = (called(("write", {"path": "a", "content": "x"})),)
    with scripted(*script) as server:
        done = agent(server, workspace).resume(session, permission="auto")
        offered = {t["function"]["name"] for t in bodies(server)[0]["tools"]}
    assert done is not None
    assert done.reason == "permission_denied"
    assert "write" not in offered


@pytest.mark.parametrize("dialect", ["openai_responses", "anthropic", "ollama_chat"])
def test_facts_stand_beside_the_request_in_every_dialect(session: Session, dialect: Any):
    refusal = of_json({"error": {"message": "no", "type": "invalid_request_error"}}, 400)
    with FaultServer({"POST /v1/*": refusal, "POST /api/chat": refusal}) as server:
        provider = Provider("model", server.base_url, dialect, limits=QUICK)
        runner = Agent(provider, window=40_000)
        parts = [{"type": "image", "data": PIXEL, "media_type": "image/png"}]
        runner.run(session, "look", presenter_context={"open_file": "a.py"}, parts=parts)
        runner.run(session, "again", presenter_context={"open_file": "b.py"})
        first, second = (json.loads(r.body) for r in server.requests if r.body)
    name = "input" if dialect == "openai_responses" else "messages"
    assert "a.py" in json.dumps(first[name][-1]["content"])
    assert "b.py" in json.dumps(second[name][-1]["content"])
    assert "a.py" not in json.dumps(second)
    assert json.dumps(second).count("Workspace:") == 1


def test_a_request_without_room_for_its_text_leaves_the_facts_out(session: Session):
    with scripted(said("a")) as server:
        runner = agent(server, window=3_000)
        done = runner.run(session, "word " * 2_500, presenter_context={"open_file": "a.py"})
        sent = bodies(server)
    if done.ok:
        assert len(json.dumps(sent[0])) < 20_000
    else:
        assert done.reason == "context_overflow"


def test_a_stores_own_records_are_the_sessions(session: Session):
    store = SessionStore(Place(session, "openai_chat", "m", list))
    assert store.url == session.log.url
    assert store.purge(1e12) == 0
    assert store.checkpoints.all() == []
    store.close()
