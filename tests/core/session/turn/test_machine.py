"""The turn's machine: which events it records, when it stops, what it never runs twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.session.turn.stage import WRITE, Stage, called, pending, said
from ullage.core.dialects.reply import Reply
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ErrorKind
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import fold
from ullage.core.session.permissions import Consent, Decision
from ullage.core.session.skills import Skill
from ullage.core.session.tools import ToolOutcome
from ullage.core.session.turn.effects import (
    Ask,
    Crashed,
    Effect,
    Failed,
    Heard,
    Interrupted,
    NotReady,
    Prepare,
    Ready,
    Record,
    RunTools,
    Send,
)
from ullage.core.tokens.budget import TurnBudget

TOO_LARGE = Failed("too large", ErrorKind("input"), 400)
BROKEN = Failed("reset", ErrorKind("other"), lost=True, partial="The cel")
DENY = Decision("deny", "the permission is read_only", "permission")
PLAN = Decision("deny", "plan mode: nothing is written", "mode")
ASK = Decision("ask", "a change is made", "permission")


def test_a_plain_answer_is_user_started_usage_assistant_completed():
    stage = Stage([said("wine")])
    done = stage.play()
    assert done.ok
    assert (done.text, done.rounds, done.usage) == ("wine", 1, Usage(10, output=5))
    assert stage.types() == [
        *("user_message", "turn_started", "provider_usage", "assistant_message"),
        "turn_completed",
    ]


def test_a_tool_inserts_call_result_and_usage():
    stage = Stage([called("write", text="I look"), said("wine")])
    assert stage.play().ok
    assert stage.types()[2:] == [
        *("provider_usage", "assistant_message", "tool_call", "tool_result"),
        *("provider_usage", "assistant_message", "turn_completed"),
    ]
    call = stage.data("tool_call")[0]
    assert (call["key"], call["idempotent"], call["reads_only"]) == ("t1-1-0", False, False)


def test_a_call_is_on_disk_before_it_runs_and_an_answer_is_one_append():
    stage = Stage([called("write"), said("wine")])
    seen: list[list[str]] = []

    def look(effect: Effect) -> None:
        if isinstance(effect, RunTools):
            seen.append(stage.types())

    stage.before = look
    stage.play()
    assert seen[0][-1] == "tool_call"
    last = [e for e in stage.effects if isinstance(e, Record)][-1]
    assert [d.type for d in last.drafts] == [
        "provider_usage",
        "assistant_message",
        "turn_completed",
    ]


def test_thirteen_rounds_pass_without_a_cap():
    stage = Stage([*[called("read", prefix=f"{n}") for n in range(13)], said("done")])
    done = stage.play()
    assert (done.ok, done.rounds, len(stage.ran)) == (True, 14, 13)


@pytest.mark.parametrize(("cap", "ran"), [(1, 0), (2, 1), (3, 2)])
def test_at_a_cap_the_last_calls_are_neither_run_nor_recorded(cap: int, ran: int):
    stage = Stage([called("write", prefix=f"{n}", text="next") for n in range(5)])
    done = stage.play(max_iterations=cap)
    assert (done.ok, done.reason, done.rounds) == (False, "iteration_cap", cap)
    assert (len(stage.ran), len(stage.data("tool_call"))) == (ran, ran)
    assert stage.data("turn_failed")[0]["reason"] == "iteration_cap"
    assert not stage.fold.open_calls


def test_calls_that_only_read_run_side_by_side_and_results_keep_the_order():
    stage = Stage([called("read_a", "read_b", "write", "read_c"), said("done")])
    stage.play()
    groups = [[c.name for c in e.calls] for e in stage.effects if isinstance(e, RunTools)]
    assert groups == [["read_a", "read_b"], ["write"], ["read_c"]]
    assert [r["call_id"] for r in stage.data("tool_result")] == ["c0", "c1", "c2", "c3"]


def test_what_tools_used_of_models_is_counted_in_and_bounds_what_follows():
    stage = Stage([called("read_a", "read_b"), called("write", prefix="w"), said("done")])
    used = Usage(100, output=10, reasoning=5)
    stage.outcome = lambda call: ToolOutcome("ok", usage=used if call.name == "read_a" else None)
    stage.prepare = lambda: Ready(10, 0.0)
    done = stage.play(budget=TurnBudget(1_000))
    left = [e.left.tokens for e in stage.effects if isinstance(e, RunTools) and e.left]
    assert (done.delegated, done.usage, done.dollars) == (used, Usage(30, output=15), None)
    assert left == [(1_000 - 15) // 2, 1_000 - 30 - 115]


def test_results_carry_exit_code_and_marks():
    stage = Stage([called("shell"), said("done")])
    stage.outcome = lambda call: ToolOutcome(
        "no", is_error=True, exit_code=3, marks={"dry_run": True}
    )
    stage.play(dry_run=True)
    result = stage.data("tool_result")[0]
    assert (result["exit_code"], result["marks"]) == (3, {"dry_run": True})
    assert stage.data("turn_started")[0]["dry_run"] is True


def test_a_denial_by_rule_ends_the_turn_and_leaves_no_call_open():
    stage = Stage([called("read_a", "write", "shell"), said("never")])
    stage.decide = lambda call: DENY if call.name == "write" else Decision("allow")
    done = stage.play()
    assert (done.reason, done.ok) == ("permission_denied", False)
    assert "read_only" in done.error
    assert len(stage.data("tool_result")) == 3
    assert not stage.fold.open_calls
    assert stage.ran == ["t1-1-0"]
    assert stage.types()[-1] == "turn_failed"


def test_in_plan_mode_a_change_is_answered_to_the_model_and_the_turn_goes_on():
    stage = Stage([called("read_a", "write", "shell"), said("here is the plan")])
    stage.decide = lambda call: Decision("allow") if call.name == "read_a" else PLAN
    done = stage.play(mode="plan")
    assert (done.ok, done.text, stage.ran) == (True, "here is the plan", ["t1-1-0"])
    told = [r["text"] for r in stage.data("tool_result")]
    assert told == ["ran read_a", *["not run: plan mode: nothing is written"] * 2]
    assert [d["decision"] for d in stage.data("permission_decision")] == ["deny", "deny"]


def test_a_model_that_goes_on_trying_in_plan_mode_ends_the_turn():
    stage = Stage([called("write", prefix=str(n)) for n in range(20)])
    stage.decide = lambda call: PLAN
    done = stage.play(mode="plan")
    assert (done.reason, done.rounds, stage.ran) == ("permission_denied", 8, [])
    assert not stage.fold.open_calls


@pytest.mark.parametrize("word", [True, False])
def test_a_person_decides_and_a_no_does_not_end_the_turn(word: bool):
    stage = Stage([called("write", "shell"), said("done")], word=Consent(word))
    stage.decide = lambda call: ASK if call.name == "write" else Decision("allow")
    assert stage.play().ok
    assert stage.data("permission_decision")[0]["decision"] == ("allow" if word else "deny")
    assert stage.ran == (["t1-1-0", "t1-1-1"] if word else ["t1-1-1"])
    first = stage.data("tool_result")[0]
    assert first["is_error"] is not word


def test_a_persons_reason_is_told_to_the_model_and_recorded_with_the_scope():
    stage = Stage([called("write"), said("done")], word=Consent(False, "use the other file"))
    stage.decide = lambda call: ASK
    assert stage.play().ok
    assert "a person said no: use the other file" in stage.data("tool_result")[0]["text"]
    recorded = stage.data("permission_decision")[0]
    assert (recorded["said"], recorded["scope"]) == ("use the other file", "once")
    assert "pattern" not in recorded


def test_a_call_that_must_fail_is_not_asked_about_and_its_failure_is_the_result():
    stage = Stage([called("write", "shell"), said("done")], word=Consent(True))
    stage.decide = lambda call: ASK
    lacking = ToolOutcome("error: not in it", is_error=True)
    stage.rehearse = lambda call: lacking if call.name == "write" else pending(call)
    assert stage.play().ok
    assert [r["text"] for r in stage.data("tool_result")] == ["error: not in it", "ran shell"]
    assert [effect.call.name for effect in stage.effects if isinstance(effect, Ask)] == ["shell"]
    assert stage.ran == ["t1-1-1"]


def test_what_was_allowed_for_the_session_runs_unasked_and_is_recorded():
    stage = Stage([called("write"), said("done")])
    stage.decide = lambda call: Decision("allow", "a person allowed every call of write", "grant")
    assert stage.play().ok
    recorded = stage.data("permission_decision")[0]
    assert (recorded["decision"], recorded["by"]) == ("allow", "grant")
    assert stage.ran == ["t1-1-0"]


def test_where_nobody_can_be_asked_the_turn_ends():
    stage = Stage([called("read", "write")], word=None)
    stage.decide = lambda call: ASK
    done = stage.play()
    assert done.reason == "permission_denied"
    assert "nobody" in done.error
    assert not stage.fold.open_calls


def test_a_no_before_a_denial_in_one_group_is_told_as_a_no():
    stage = Stage([called("read_a", "read_b")], word=Consent(False))
    stage.decide = lambda call: ASK if call.name == "read_a" else DENY
    stage.play()
    texts = [r["text"] for r in stage.data("tool_result")]
    assert "a person said no" in texts[0]
    assert "permission denied" in texts[1]


def test_what_a_rule_says_without_a_reason_still_says_that_nobody_is_there():
    stage = Stage([called("write")], word=None)
    stage.decide = lambda call: Decision("ask")
    assert "nobody" in stage.play().error


# ── the model ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (NotReady("context_overflow", "9 of 8"), "context_overflow"),
        (NotReady("malformed_history", "messages[0]"), "malformed_history"),
    ],
)
def test_what_cannot_be_sent_ends_the_turn(refused: NotReady, reason: str):
    stage = Stage(prepare=lambda: refused)
    done = stage.play()
    assert (done.reason, done.error) == (reason, refused.text)


def test_after_an_overflow_a_smaller_request_is_answered():
    stage = Stage([TOO_LARGE, said("wine")], recover=lambda failed: Ready())
    assert stage.play().ok


def test_an_overflow_that_nothing_helps_against_is_the_providers_error():
    stage = Stage([TOO_LARGE])
    done = stage.play()
    assert (done.reason, done.error) == ("context_overflow", "too large")


def test_text_before_a_break_is_kept_partial_and_never_sent():
    stage = Stage([BROKEN, said("The cellar")], recover=lambda failed: Ready())
    assert stage.play().text == "The cellar"
    partial, whole = stage.data("assistant_message")
    assert (partial["text"], partial["partial"]) == ("The cel", True)
    assert stage.fold.items[-1].texts == ("The cellar",)  # type: ignore[union-attr]
    assert whole["text"] == "The cellar"


def test_a_connection_that_keeps_breaking_is_given_up():
    tries: list[Failed] = []

    def again(failed: Failed) -> Ready:
        tries.append(failed)
        return Ready()

    done = Stage([BROKEN] * 9, recover=again).play()
    assert (done.reason, len(tries)) == ("provider_error", 2)


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (Failed("silent", ErrorKind("other"), stalled=True), "stalled"),
        (Failed("reset", ErrorKind("other"), lost=True, called=True), "provider_error"),
        (Failed("no such model", ErrorKind("other"), 404), "provider_error"),
    ],
)
def test_what_must_not_be_sent_again_ends_the_turn_with_commands(failed: Failed, reason: str):
    stage = Stage([failed])
    done = stage.play(commands=("ullage resume s",))
    assert done.reason == reason
    assert stage.data("turn_failed")[0]["commands"] == ["ullage resume s"]


@pytest.mark.parametrize("stop", ["end", "length"])
def test_an_answer_without_text_is_no_answer(stop: Any):
    thought = ({"reasoning_content": "hm"},)
    stage = Stage([Heard(Reply("", thoughts=thought, stop=stop))])
    done = stage.play()
    assert (done.reason, done.ok) == ("no_answer", False)
    assert "reasoning" not in stage.types()
    assert "input" not in stage.data("provider_usage")[0]


def test_an_answer_that_was_cut_off_says_so():
    stage = Stage([said("The cel", stop="length")])
    assert stage.play().stop == "length"
    assert stage.data("turn_completed")[0]["stop"] == "length"


def test_reasoning_is_recorded_with_its_model_and_dialect():
    block = {"reasoning_content": "hm"}
    stage = Stage([said("wine", thoughts=(block,))])
    stage.play()
    thought = stage.data("reasoning")[0]
    assert (thought["block"], thought["dialect"]) == (block, "openai_chat")


# ── budgets ─────────────────────────────────────────────────────────────────────────────────────


def test_a_turn_over_its_budget_makes_no_call():
    stage = Stage([called("write"), said("wine")], prepare=lambda: Ready(100, 0.1))
    done = stage.play(budget=TurnBudget(tokens=110, recovery_share=0))
    assert (done.reason, done.rounds) == ("budget", 1)
    assert "budget" in done.error


def test_a_recovery_may_use_what_was_kept_for_it():
    stage = Stage([TOO_LARGE, said("wine")], recover=lambda failed: Ready(95))
    stage.prepare = lambda: Ready(50)
    assert stage.play(budget=TurnBudget(tokens=100, recovery_share=0.2)).ok


# ── what was open before ────────────────────────────────────────────────────────────────────────


def cut_off(*calls: tuple[str, bool]) -> Stage:
    """Return a stage whose log ends behind calls without results: (name, idempotent)."""
    stage = Stage()
    stage.record(Draft("user_message", {"text": "go"}), Draft("turn_started", {"turn": "t0"}))
    for i, (name, idempotent) in enumerate(calls):
        data = {"call_id": f"o{i}", "name": name, "arguments": "{}", "round": 1}
        stage.record(Draft("tool_call", {**data, "key": f"t0-1-{i}", "idempotent": idempotent}))
    return stage


def test_a_new_turn_closes_what_the_one_before_left_open():
    stage = cut_off(("write", False), ("read", True))
    stage._left = iter([said("wine")])
    assert stage.play("again").ok
    assert [r["call_id"] for r in stage.data("tool_result")] == ["o0", "o1"]
    assert stage.data("turn_failed")[0] == {
        "turn": "t0",
        "reason": "process_died",
        "error": "the process ended before it was done",
    }
    assert stage.ran == []


def test_a_resumed_turn_runs_again_only_what_may():
    stage = cut_off(("write", False), ("read", True))
    stage._left = iter([said("wine")])
    assert stage.play(None, turn="t0").ok
    assert stage.ran == ["t0-1-1"]
    results = {r["call_id"]: r["text"] for r in stage.data("tool_result")}
    assert results["o0"].startswith("orphan_tool_call")
    assert results["o1"] == "ran read"
    assert stage.types()[-1] == "turn_completed"


def test_a_call_of_an_older_log_runs_again_under_its_id():
    stage = Stage([said("wine")])
    stage.record(Draft("turn_started", {"turn": "t0"}))
    old = {"call_id": "o0", "name": "read", "arguments": "{}", "idempotent": True}
    stage.record(Draft("tool_call", old))
    stage.play(None, turn="t0")
    assert stage.ran == ["o0"]


def test_a_resumed_call_that_is_denied_by_now_ends_the_turn():
    stage = cut_off(("read", True))
    stage.decide = lambda call: DENY
    assert stage.play(None, turn="t0").reason == "permission_denied"


def test_a_turn_that_lacked_only_its_end_is_completed_without_a_call():
    stage = cut_off()
    stage.record(
        Draft("provider_usage", {"model": "m"}),
        Draft("assistant_message", {"text": "wine", "model": "m"}),
    )
    done = stage.play(None, turn="t0")
    assert (done.ok, done.text, done.rounds) == (True, "wine", 0)


def test_a_resumed_turn_without_a_start_in_sight_goes_on():
    stage = Stage([said("wine")])
    assert stage.play(None, turn="t0").ok


# ── skills, interrupts, crashes ─────────────────────────────────────────────────────────────────


def test_skills_that_were_named_are_activated_before_the_words():
    stage = Stage([said("wine")])
    stage.play(skills=(Skill("cellar", "", "h", "text"),), parts=({"type": "image"},))
    assert stage.types()[:3] == ["skill_activation", "user_message", "turn_started"]
    assert stage.data("user_message")[0]["parts"] == [{"type": "image"}]


def test_an_interrupt_keeps_the_text_that_had_come():
    stage = Stage([said("never")])
    stage.before = lambda e: Interrupted("The cel") if isinstance(e, Send) else None
    done = stage.play()
    assert (done.outcome, done.text) == ("interrupted", "The cel")
    assert stage.types()[-2:] == ["assistant_message", "turn_interrupted"]
    assert stage.data("assistant_message")[0]["partial"] is True


def test_an_interrupt_among_tools_leaves_no_call_open():
    stage = Stage([called("write")])
    stage.before = lambda e: Interrupted() if isinstance(e, RunTools) else None
    assert stage.play().outcome == "interrupted"
    assert "interrupted" in stage.data("tool_result")[0]["text"]
    assert not stage.fold.open_calls


@pytest.mark.parametrize(
    ("where", "told"), [(Ask, ["not run"] * 2), (RunTools, ["orphan_tool_call", "not run"])]
)
def test_an_interrupt_says_of_each_call_whether_it_was_begun(where: type[Effect], told: list[str]):
    stage = Stage([called("write", "write")], decide=lambda _: ASK, word=Consent(True))
    stage.before = lambda e: Interrupted() if isinstance(e, where) else None
    assert stage.play().outcome == "interrupted"
    assert [r["text"].partition(":")[0] for r in stage.data("tool_result")] == told


def test_what_a_process_before_may_have_run_is_never_said_not_to_have_run():
    stage = cut_off(("read", True))
    stage.decide = lambda _: ASK
    stage.before = lambda e: Interrupted() if isinstance(e, Ask) else None
    assert stage.play(None, turn="t0").outcome == "interrupted"
    assert [r["text"].partition(":")[0] for r in stage.data("tool_result")] == ["orphan_tool_call"]


def test_a_crash_is_a_failed_turn_with_its_reason():
    stage = Stage([said("never")])
    stage.before = lambda e: Crashed("KeyError: 'x'", "The") if isinstance(e, Send) else None
    done = stage.play(commands=("ullage show s",))
    assert (done.reason, done.error) == ("crashed", "KeyError: 'x'")
    assert stage.data("turn_failed")[0]["commands"] == ["ullage show s"]


# ── laws ────────────────────────────────────────────────────────────────────────────────────────

ANSWERS = st.lists(
    st.one_of(
        st.sampled_from([TOO_LARGE, BROKEN]),
        st.lists(st.sampled_from(["read", "write", "denied", "asked"]), min_size=1, max_size=4),
        st.just("text"),
    ),
    max_size=8,
)


@given(ANSWERS, st.integers(0, 40), st.sampled_from([True, False, None]), st.integers(1, 5))
def test_however_a_turn_goes_and_is_cut_it_leaves_a_whole_history(
    script: list[Any], cut: int, word: bool | None, cap: int
):
    answers: list[Any] = []
    for n, answer in enumerate([*script, "text"]):
        made = called(*answer, prefix=f"{n}-") if isinstance(answer, list) else answer
        answers.append(said("wine") if made == "text" else made)
    consent = None if word is None else Consent(word)
    stage = Stage(answers, word=consent, recover=lambda failed: Ready())
    kinds = {"denied": DENY, "asked": ASK}
    stage.decide = lambda call: kinds.get(call.name, Decision("allow"))
    stage.before = lambda effect: (
        Interrupted("x") if len(stage.effects) == cut and not isinstance(effect, Record) else None
    )
    try:
        done = stage.play(max_iterations=cap)
    except StopIteration:  # pragma: no cover - the script ends with an answer
        raise AssertionError from None
    ends = [t for t in stage.types() if t in {"turn_completed", "turn_failed", "turn_interrupted"}]
    assert len(ends) == 1
    assert stage.types()[-1] == ends[0] == f"turn_{done.outcome}"
    assert not stage.fold.open_calls
    assert stage.fold.turn is None
    assert len(stage.ran) == len(set(stage.ran))
    assert fold(stage.events).items == stage.fold.items
    assert not stage.fold.strays


@given(ANSWERS, st.integers(0, 60))
def test_a_turn_that_dies_anywhere_runs_no_writing_call_again(script: list[Any], dies: int):
    """Kill the driver before an effect, fold the log again, and resume."""
    answers = [
        called(*answer, prefix=f"{n}-") if isinstance(answer, list) else said("wine")
        for n, answer in enumerate([*script, "text"])
    ]
    stage = Stage(answers)

    class Killed(BaseException):
        pass

    def kill(effect: Effect) -> None:
        if len(stage.effects) == dies + 1:
            raise Killed

    stage.before = kill
    try:
        stage.play()
    except Killed:
        after = Stage([said("wine")], fold=fold(stage.events), events=list(stage.events))
        cut = after.fold.turn
        if cut is not None:
            assert after.play(None, turn=cut.turn).ok
            again = set(after.ran) & set(stage.ran)
            idempotent = {c["key"] for c in stage.data("tool_call") if c["idempotent"]}
            assert again <= idempotent
            assert not after.fold.open_calls
            assert after.events[: len(stage.events)] == stage.events
    assert WRITE.idempotent is False


def test_an_interrupt_before_anything_came_records_only_itself():
    stage = Stage([said("never")])
    stage.before = lambda e: Interrupted() if isinstance(e, Prepare) else None
    assert stage.play().outcome == "interrupted"
    assert stage.types() == ["user_message", "turn_started", "turn_interrupted"]
