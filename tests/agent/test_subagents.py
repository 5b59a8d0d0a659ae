"""Subagents: sessions of their own that answer a call, linked both ways, within bounds."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import data, types
from ullage.agent import Agent, Call, Ended, Live, Pending, Reply, Rule, Session, Subagents
from ullage.agent.subagents import SubagentTool, make_name, read_end, run_apart
from ullage.core.dialects.usage import Usage
from ullage.core.errors import BusyWriter, ConfigurationError
from ullage.core.session.log.event import Draft, Event
from ullage.core.session.permissions import CallSubject, Grant, Posture
from ullage.core.tokens.budget import TurnBudget
from ullage.storage.log_sqlite import SqliteLog
from ullage.tools import Executor

USED = Usage(100, output=10)


def calls(*asked: tuple[str, Mapping[str, Any]]) -> Reply:
    made = tuple(Call("", name, json.dumps(arguments)) for name, arguments in asked)
    return Reply("", calls=made, stop="calls", usage=USED)


def delegate(task: str, **more: Any) -> Reply:
    return calls(("subagent", {"task": task, **more}))


def write(name: str = "made.txt") -> Reply:
    return calls(("write", {"path": name, "content": "x\n"}))


def says(text: str) -> Reply:
    return Reply(text, usage=USED)


class Acting:
    """Play a script for each task, by what the first message says; `asked` are the requests."""

    model = "acting"
    window = 100_000

    def __init__(self, **scripts: Any) -> None:
        self.scripts = {name: list(answers) for name, answers in scripts.items()}
        self.asked: dict[str, list[Mapping[str, Any]]] = {name: [] for name in scripts}
        self.hangs = asyncio.Event()

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[object]:
        task = str(request["messages"][1]["content"]).split()[0]
        self.asked[task].append(request)
        answer = self.scripts[task].pop(0)
        if answer is None:
            yield "I begin"
            self.hangs.set()
            await asyncio.Event().wait()
        if isinstance(answer, BaseException):
            raise answer
        yield answer

    def tools(self, task: str) -> list[str]:
        return [tool["function"]["name"] for tool in self.asked[task][0]["tools"]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "cellar.txt").write_text("seven casks\n")
    return folder


def child_of(session: Session, place: int = 0) -> Session:
    names = dict.fromkeys(link["child"] for link in session.fold.links)
    return Session(session.log, list(names)[place])


def run(model: Any, session: Session, workspace: Path, **more: Any) -> Ended:
    options = more.pop("options", {})
    agent = Agent(model, workspace=workspace, **{"subagents": True, **more})
    return agent.run(session, "main: go", **options)


def result(session: Session) -> Mapping[str, Any]:
    return data(session, "tool_result")[-1]


# ── what a subagent is ──────────────────────────────────────────────────────────────────────────


def test_a_task_is_done_in_a_session_of_its_own_and_its_answer_is_the_result(
    session: Session, workspace: Path
):
    read = calls(("read", {"path": "cellar.txt"}))
    model = Acting(**{"main:": [delegate("look at it"), says("Seven.")], "look": [read, says("7")]})
    live: list[Live] = []
    session.hear(lambda event: live.append(event) if isinstance(event, Live) else None)
    done = run(model, session, workspace)
    child = child_of(session)
    assert (done.ok, done.text) == (True, "Seven.")
    assert result(session)["text"] == "7"
    assert result(session)["marks"] == {"subagent": child.name}
    assert types(child)[-1] == "turn_completed"
    assert "seven casks" in data(child, "tool_result")[0]["text"]
    assert "seven casks" not in json.dumps([event.text for event in session.events()])
    shown = "\n".join(str(event.data.get("text")) for event in live if event.type == "status")
    assert f"subagent {child.name} works on: look at it" in shown
    assert f"subagent {child.name}: read" in shown


def test_both_logs_name_each_other_and_what_was_used(session: Session, workspace: Path):
    model = Acting(**{"main:": [delegate("look"), says("ok")], "look": [says("7")]})
    done = run(model, session, workspace)
    child = child_of(session)
    begun, ended = data(session, "subagent_event")
    assert begun == {"child": child.name, "key": f"{done.turn}-1-0", "task": "look"}
    assert ended["outcome"] == "completed"
    assert ended["usage"]["input"] == 100
    created = child.fold.created
    assert created == {"parent": session.name, "root": session.name, "depth": 1}
    assert (done.usage, done.delegated) == (Usage(200, output=20), USED)


def test_what_it_costs_is_part_of_the_turn(session: Session, workspace: Path):
    model = Acting(**{"main:": [delegate("look"), says("ok")], "look": [says("7")]})
    model.model = "gpt-4o"
    done = run(model, session, workspace)
    child = data(session, "subagent_event")[-1]
    assert done.dollars == pytest.approx(3 * child["dollars"])


def test_a_subagent_is_told_its_role_and_has_the_tools_of_its_parent_but_this(
    session: Session, workspace: Path
):
    model = Acting(**{"main:": [delegate("look"), says("ok")], "look": [says("7")]})
    run(model, session, workspace)
    assert "Role: subagent" in model.asked["look"][0]["messages"][0]["content"]
    assert "Role: main" in model.asked["main:"][0]["messages"][0]["content"]
    assert {*model.tools("main:")} - {*model.tools("look")} == {"subagent"}


def test_none_is_offered_unless_it_is_asked_for(session: Session, workspace: Path):
    model = Acting(**{"main:": [says("ok")]})
    run(model, session, workspace, subagents=None)
    assert "subagent" not in model.tools("main:")


def test_its_own_changes_are_undone_with_the_turn_of_the_parent(session: Session, workspace: Path):
    model = Acting(**{"main:": [delegate("do"), says("ok")], "do": [write(), says("7")]})
    run(model, session, workspace)
    assert (workspace / "made.txt").exists()
    session.undo_files()
    assert not (workspace / "made.txt").exists()


def test_provider_window_and_tools_are_the_parent_s_unless_told_otherwise(
    session: Session, workspace: Path
):
    other = Acting(look=[says("7")])
    main = Acting(**{"main:": [delegate("look"), says("ok")]})
    heard: list[str] = []
    settings = Subagents(
        provider=other,
        window=50_000,
        executor=lambda _: Executor(workspace, tools=()),
        hear=lambda event: heard.append(event.type),
    )
    run(main, session, workspace, subagents=settings)
    assert "tools" not in other.asked["look"][0]
    assert child_of(session).fold.served["model"] == "acting"
    assert "turn_completed" in heard


# ── bounds ──────────────────────────────────────────────────────────────────────────────────────


def test_depth_is_kept_by_the_log_of_each_session(session: Session, workspace: Path):
    scripts = {
        "main:": [delegate("one"), says("ok")],
        "one": [delegate("two"), says("1")],
        "two": [says("2")],
    }
    model = Acting(**scripts)
    run(model, session, workspace, subagents=2)
    first = child_of(session)
    assert child_of(first).fold.created == {"parent": first.name, "root": "s", "depth": 2}
    assert "subagent" in model.tools("one")
    assert "subagent" not in model.tools("two")
    again = Acting(one=[says("done")])  # resumed by hand it is no deeper
    Agent(again, workspace=workspace, subagents=1).run(first, "one more")
    assert "subagent" not in again.tools("one")


def test_a_turn_begins_no_more_than_it_may(session: Session, workspace: Path):
    two = calls(("subagent", {"task": "look"}), ("subagent", {"task": "look"}))
    model = Acting(**{"main:": [two, says("ok")], "look": [says("7")]})
    assert run(model, session, workspace, subagents=Subagents(most=1)).ok
    assert "1 subagents were begun in this turn, the most is 1" in result(session)["text"]
    assert len(session.log.sessions()) == 2


@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        (Subagents(max_iterations=1), {}, "iteration_cap"),
        (Subagents(budget=TurnBudget(tokens=10)), {}, "budget"),
        (Subagents(), {"budget": TurnBudget(tokens=6_000, recovery_share=0)}, "budget"),
    ],
)
def test_what_a_subagent_may_use_is_bounded(
    session: Session, workspace: Path, settings: Subagents, options: Any, reason: str
):
    read = calls(("read", {"path": "cellar.txt"}))
    long = calls(("subagent", {"task": "look " + "at casks " * 2_500}))
    model = Acting(**{"main:": [long, says("ok")], "look": [read, says("7")]})
    agent = Agent(model, workspace=workspace, subagents=settings)
    agent.run(session, "main: go", **options)
    assert result(session)["is_error"]
    assert f"({reason})" in result(session)["text"]
    assert data(session, "subagent_event")[-1]["reason"] == reason


def test_what_subagents_used_counts_against_the_budget_of_the_turn(
    session: Session, workspace: Path
):
    heavy = Reply("7", usage=Usage(40_000, output=1))
    model = Acting(**{"main:": [delegate("look"), says("ok")], "look": [heavy]})
    budget = TurnBudget(tokens=40_120, recovery_share=0)
    done = run(model, session, workspace, options={"budget": budget})
    assert (done.reason, done.delegated.input) == ("budget", 40_000)
    assert "40,111 tokens of 40,120 tokens are spent" in done.error


# ── permissions ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [{"mode": "plan"}, {"permission": "read_only"}])
def test_a_subagent_may_change_no_more_than_its_parent(
    session: Session, workspace: Path, options: Any
):
    model = Acting(**{"main:": [delegate("do"), says("ok")], "do": [write(), says("no")]})
    run(model, session, workspace, options=options)
    assert not (workspace / "made.txt").exists()
    assert "write" not in model.tools("do")
    denied = data(child_of(session), "permission_decision")[0]
    assert denied["decision"] == "deny"


def test_write_policies_hold_for_subagents(session: Session, workspace: Path):
    model = Acting(**{"main:": [delegate("do"), says("ok")], "do": [write(), says("no")]})
    assert run(model, session, workspace, writes=[Rule("*.txt", "deny")]).ok
    assert "(permission_denied)" in result(session)["text"]


def test_a_person_is_asked_about_the_calls_of_a_subagent(session: Session, workspace: Path):
    asked: list[str] = []

    def ask(call: Pending, reason: str) -> bool:
        asked.append(f"{call.name}: {reason}")
        return True

    model = Acting(**{"main:": [delegate("do"), says("ok")], "do": [write(), says("done")]})
    run(model, session, workspace, options={"permission": "ask", "ask": ask})
    assert (workspace / "made.txt").exists()
    assert asked[0].startswith(f"write: subagent {child_of(session).name}: the permission is ask")
    assert len(asked) == 1


def test_what_was_allowed_in_the_parent_is_allowed_and_nothing_flows_back(
    session: Session, workspace: Path
):
    session.grants.append(Grant(CallSubject("write", "path", "made.txt"), "same"))
    model = Acting(
        **{"main:": [delegate("do"), says("ok")], "do": [write(), write("other.txt"), says("x")]}
    )
    run(model, session, workspace, options={"permission": "ask"})
    assert (workspace / "made.txt").exists()
    assert not (workspace / "other.txt").exists()
    assert len(session.grants) == 1


def test_a_subagent_that_only_reads_runs_beside_others(session: Session, workspace: Path):
    both = calls(*(("subagent", {"task": name, "mode": "plan"}) for name in ("one", "two")))

    class Meeting(Acting):
        """Let each subagent answer once both have asked."""

        async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[object]:
            async for piece in super().stream(request):
                if all(self.asked.values()):
                    self.hangs.set()
                await self.hangs.wait()
                yield piece

    model = Meeting(one=[says("1")], two=[says("2")])
    first = Acting(**{"main:": [both, says("ok")]})
    agent = Agent(first, workspace=workspace, subagents=Subagents(provider=model))
    assert agent.run(session, "main: go").ok
    assert [e["text"] for e in data(session, "tool_result")] == ["1", "2"]
    assert "snapshot_taken" not in types(session)


def test_a_dry_run_begins_none(session: Session, workspace: Path):
    model = Acting(**{"main:": [delegate("look"), says("ok")]})
    run(model, session, workspace, options={"dry_run": True})
    assert "a subagent would begin in build mode: look" in result(session)["text"]
    assert len(session.log.sessions()) == 1


# ── ends ────────────────────────────────────────────────────────────────────────────────────────


def test_a_failure_is_told_to_the_model_of_the_parent(session: Session, workspace: Path):
    model = Acting(**{"main:": [delegate("look"), says("ok")], "look": [ValueError("no model")]})
    assert run(model, session, workspace).ok
    assert "the subagent gave no answer" in result(session)["text"]
    assert "no model" in result(session)["text"]


def test_an_interrupt_is_recorded_in_the_child_first(session: Session, workspace: Path):
    model = Acting(**{"main:": [delegate("look")], "look": [None]})
    agent = Agent(model, workspace=workspace, subagents=True)
    order: list[str] = []

    async def go() -> None:
        task = agent.start(session, "main: go")
        await model.hangs.wait()
        child = child_of_known(session)
        log = session.log
        session.hear(
            lambda e: (
                order.append(log.read(child)[-1].type)
                if isinstance(e, Event) and e.type in ("tool_result", "turn_interrupted")
                else None
            )
        )
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert order == ["turn_interrupted", "turn_interrupted"]
    child = child_of(session)
    assert types(child)[-2:] == ["assistant_message", "turn_interrupted"]
    assert types(session)[-2:] == ["tool_result", "turn_interrupted"]
    assert child.log.leases(child.name)[-1].released is not None


def test_a_child_has_the_time_to_record_its_end_however_often_it_is_cancelled():
    async def go() -> None:
        cleaning, goes_on, recorded = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def child() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await goes_on.wait()
                recorded.set()

        running = asyncio.create_task(run_apart(child()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        await cleaning.wait()
        running.cancel()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert recorded.is_set()

    asyncio.run(go())


def child_of_known(session: Session) -> str:
    return str(session.known.links[-1]["child"])


def cut(session: Session, upto: int) -> Session:
    """Return the session as a process left it that was killed right after event `upto`."""
    log = SqliteLog(Path(session.log.url.removeprefix("sqlite://")).parent / f"cut{upto}.db")
    log.create(session.name, 1.0)
    made = Session(log, session.name)
    made.record([Draft(e.type, e.data, e.v) for e in session.events(upto=upto)])
    return made


@pytest.mark.parametrize("kept", [0, 1, 3, 5, 6, 9, 10])
def test_a_parent_that_was_killed_goes_on_with_the_child_that_it_began(
    session: Session, workspace: Path, kept: int
):
    read = calls(("read", {"path": "cellar.txt"}))
    model = Acting(**{"main:": [delegate("look"), says("Seven.")], "look": [read, says("7")]})
    done = run(model, session, workspace)
    whole, child = types(session), child_of(session)
    first, last = (e.seq for e in session.events() if e.type == "subagent_event")
    left = cut(session, last if kept > 9 else first - (kept < 2))  # with links to it, or without
    if kept:
        left.log.create(child.name, 1.0)
        known = Session(left.log, child.name)
        known.record([Draft(e.type, e.data, e.v) for e in child.events(upto=kept)])
        known.close()
    again = Acting(**{"main:": [says("Seven.")], "look": [read, says("7")][kept >= 5 :]})
    ended = Agent(again, workspace=workspace, subagents=True).resume(left)
    assert ended is not None
    assert (ended.text, result(left)["text"]) == ("Seven.", "7")
    looks = ("snapshot_taken",)  # the workspace is looked at again before the call runs again
    assert [t for t in types(left) if t not in looks] == [t for t in whole if t not in looks]
    assert [e.type for e in child_of(left).events()] == [e.type for e in child.events()]
    assert child_of(left).name == child.name
    assert done.ok


@pytest.mark.parametrize("kind", ["turn_failed", "turn_interrupted"])
def test_a_child_that_had_ended_is_not_run_again(session: Session, kind: str):
    child = Session.create(session.log)
    child.record(
        [
            Draft("user_message", {"text": "look"}),
            Draft("turn_started", {"turn": "t"}),
            Draft("provider_usage", {"model": "m", "input": 5}),
            Draft("assistant_message", {"text": "half", "model": "m", "partial": True}),
            Draft(kind, {"turn": "t", "reason": "stalled", "error": "silent"}),
        ]
    )
    ended = read_end(child.events())
    assert (ended.outcome, ended.text, ended.rounds) == (kind.removeprefix("turn_"), "half", 1)
    assert ended.usage == Usage(5)
    assert ended.reason == ("stalled" if kind == "turn_failed" else "interrupted")


def test_a_child_that_another_works_on_is_an_error_of_the_call(session: Session, workspace: Path):
    model = Acting(**{"main:": [delegate("look"), says("ok")], "look": [BusyWriter("held")]})
    assert run(model, session, workspace).ok
    assert result(session)["is_error"]


def test_a_child_that_was_taken_over_ends_the_call_and_not_the_turn(
    session: Session, workspace: Path
):
    model = Acting(**{"main:": [delegate("look"), says("ok")], "look": [None]})

    def steal(event: Any) -> None:
        if event.type == "text_delta":
            asyncio.get_running_loop().call_soon(stop)

    def stop() -> None:
        mine = [t for t in asyncio.all_tasks() if "arun" in str(t.get_coro())]
        min(mine, key=lambda task: task.get_name() == "parent").cancel()

    agent = Agent(model, workspace=workspace, subagents=Subagents(hear=steal))

    async def go() -> Ended:
        task = asyncio.create_task(agent.arun(session, "main: go"), name="parent")
        return await task

    assert asyncio.run(go()).ok
    assert "taken over" in result(session)["text"]


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("yes", "subagents is 'yes': give True, a depth"),
        (0, "depth of subagents is 0: give 1 or more"),
        (-1, "depth of subagents is -1"),
    ],
)
def test_what_is_no_setting_of_subagents_is_refused(given: Any, reason: str):
    with pytest.raises(ConfigurationError, match=reason):
        Agent(Acting(), subagents=given)


@pytest.mark.parametrize(
    "fields", [{"most": 0}, {"max_iterations": 0}, {"depth": "2"}, {"provider": 3}]
)
def test_bounds_of_subagents_are_checked(fields: Any):
    with pytest.raises(ConfigurationError):
        Subagents(**fields)


def test_a_tool_of_that_name_is_there_already(session: Session, workspace: Path):
    tool = SubagentTool(Agent(Acting()), Subagents(), Posture())
    made = Executor(workspace, tools=[tool])
    agent = Agent(Acting(), workspace=workspace, executor=lambda _: made, subagents=True)
    with pytest.raises(ConfigurationError, match="two tools have the same name: subagent"):
        agent.run(session, "main: go")


def test_a_child_is_named_by_its_call():
    assert make_name("s", "t-1-0") == make_name("s", "t-1-0") != make_name("s", "t-1-1")
    assert make_name("fork", "t-1-0") != make_name("s", "t-1-0")


def test_arguments_that_cannot_be_are_told_to_the_model(session: Session, workspace: Path):
    bad = calls(("subagent", {"goal": "look"}))
    model = Acting(**{"main:": [bad, says("ok")]})
    assert run(model, session, workspace).ok
    assert result(session)["is_error"]


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.agent.test_subagents import Acting, calls, delegate, write
from ullage.agent import Agent, Session
from ullage.storage.log_sqlite import SqliteLog

class Dying(Acting):
    async def stream(self, request):
        async for piece in super().stream(request):
            if piece == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            yield piece

model = Dying(**{"main:": [delegate("do")], "do": [write(), "die"]})
with Session.create(SqliteLog(Path(sys.argv[1])), "s") as session:
    Agent(model, workspace=sys.argv[2], subagents=True).run(session, "main: go")
"""


def test_a_process_that_was_killed_leaves_a_child_that_goes_on_with_its_parent(
    tmp_path: Path, workspace: Path
):
    file = tmp_path / "state" / "log.db"
    root = Path(__file__).parents[2]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(file), str(workspace)], cwd=root, check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    session = Session(SqliteLog(file), "s")
    child = child_of(session)
    assert session.fold.turn is not None
    assert child.fold.turn is not None
    model = Acting(**{"main:": [says("ok")], "do": [says("done")]})
    with session:
        ended = Agent(model, workspace=workspace, subagents=True).resume(session)
    assert ended is not None
    assert ended.ok
    assert result(session)["text"] == "done"
    assert [e.type for e in child.events()].count("tool_call") == 1
    assert len(session.log.sessions()) == 2
    child.undo_files()
    assert not (workspace / "made.txt").exists()
