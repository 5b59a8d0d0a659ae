"""facts: what is collected, what is forgotten, and what survives any number of rounds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fidelity import KINDS, SETS, corpus
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.facts.calls import NOW
from ullage.core.facts.extract import (
    ASSISTANT,
    BOUNDS,
    TODO,
    Facts,
    Folds,
    collect,
    collect_held,
    parse,
    render,
)
from ullage.core.messages.transcript import SUMMARY_MARK, Call, Message, Part

SENTENCES = (
    "Never touch src/main.py.",
    "You may touch src/main.py again.",
    "Use port 8080 for the dev server.",
    "Use port 9090 for the dev server instead.",
    "Keep lines under 80 characters.",
    "Keep lines under 100 characters.",
    "The staging host is a1.example.net.",
    "The staging host is b2.example.net.",
    "TODO: write the migration.",
    "Done: write the migration.",
    "- [ ] add a test\n- [x] add a test",
    "We decided to go with polars.",
    "That did not work because of the lock.",
    "The ticket is OPS-4711.",
    "Thanks!",
    "Scratch that.\nUse port 1234 for the dev server.",
    "Rules:\n- four spaces\n- no tabs",
    "```\nnever run this\n```",
    "(assistant) The ticket is OPS-1.",
    "日本語で必ず答えてください。",
)


def user(text: str) -> Message:
    return Message("user", (Part("text", text),))


def assistant(text: str = "", *calls: Call) -> Message:
    return Message("assistant", (Part("text", text),) if text else (), calls)


def call(tool: str, **arguments: Any) -> Message:
    return assistant("", Call("c", tool, json.dumps(arguments)))


def words(text: str) -> int:
    return len(text.split())


CALLS = (
    call("read_file", path="src/a.py"),
    call("edit", file_path="src/b.py", new="x"),
    call("Skill", name="pdf"),
    call("TodoWrite", todos=[{"content": "ship", "status": "pending"}]),
    call("TodoWrite", todos=[{"content": "ship", "status": "completed"}]),
    Message("tool", (Part("result", "never ever", "c"),)),
)

texts = st.lists(st.sampled_from(SENTENCES), max_size=4).map(" ".join) | st.text(max_size=60)
messages = st.lists(
    st.builds(user, texts) | st.builds(assistant, texts) | st.sampled_from(CALLS), max_size=12
)

# ── laws ────────────────────────────────────────────────────────────────────────────────────────


@given(messages, messages)
def test_collecting_in_two_steps_is_collecting_in_one(first: list[Message], second: list[Message]):
    assert collect(first + second) == collect(second, earlier=collect(first))


@given(messages, messages, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4))
def test_a_fold_that_goes_on_from_another_is_one_from_the_start(
    before: list[Message], history: list[Message], cuts: list[tuple[int, int]]
):
    folds, earlier = Folds(least=1), collect(before)
    for end, hole in [*cuts, *cuts[:1]]:
        places = tuple(place for place in range(min(end, len(history))) if place != hole)
        found = [history[place] for place in places]
        assert folds.collect_held(history, places, earlier) == collect_held(found, earlier)


@given(messages, messages)
def test_without_works_all_but_files_commands_and_skills_is_the_same(
    before: list[Message], history: list[Message]
):
    earlier = collect(before)
    facts, gone = collect_held(history, earlier)
    bare, same = collect_held(history, earlier, works=False)
    names = ("changed", "files", "commands", "skills")
    kept = {name: getattr(earlier, name) for name in names}
    assert (bare, same) == (replace(facts, **kept), gone)


@given(messages)
def test_the_same_messages_give_the_same_facts(history: list[Message]):
    fresh = [Message(m.role, m.parts, m.calls, m.name) for m in history]
    assert collect(history) == collect(fresh) == collect(history)


@given(messages)
def test_what_was_collected_can_be_written_and_read_back(history: list[Message]):
    facts = collect(history)
    assert parse(render(facts, float("inf"), words)) == (facts, "")


@given(messages)
def test_collecting_nothing_more_changes_nothing(history: list[Message]):
    facts = collect(history)
    assert collect([], earlier=facts) == facts


def test_a_later_value_takes_the_place_of_one_among_the_words_that_outlived():
    told = "The dog snores. … We raised the budget to 38,000 euros. It rains"
    later = Message("user", (Part("text", "We raised the budget to 41,000 euros."),))
    facts, gone = collect_held([later], Facts(said=(told,)))
    assert gone == {"We raised the budget to 38,000 euros."}
    assert facts.constraints == ("We raised the budget to 41,000 euros.",)


@given(st.lists(messages, min_size=3, max_size=3))
def test_what_fits_is_kept_through_three_rounds(rounds: list[list[Message]]):
    facts = Facts()
    for history in rounds:
        facts = parse(render(collect(history, earlier=facts), 10_000, words))[0]
    assert facts == collect([m for history in rounds for m in history])


@pytest.mark.parametrize(
    "text",
    [
        "a" * 10**6,
        " " * 10**6,
        "never " * 170_000,
        "never. " * 150_000,
        "never x\n" * 120_000,
        "- " * 500_000,
        "x@" * 500_000,
        "1-1a." * 200_000,
        "leave it " * 110_000,
    ],
    ids=lambda text: text[:6],
)
def test_a_megabyte_that_was_pasted_makes_facts_no_bigger_than_their_bounds(text: str):
    facts = collect([user(text), assistant(text)])
    assert len(render(facts, float("inf"), len)) < 8_000


def test_what_is_carried_over_is_held_to_the_bounds_too():
    forged = Facts(constraints=("x" * 9999, "", "Never touch main.py."), skills=("y" * 9999,))
    assert collect([], earlier=forged) == Facts(constraints=("Never touch main.py.",))


def test_no_number_of_messages_makes_facts_bigger_than_their_bounds():
    history: list[Message] = []
    for i in range(700):
        history += [
            user(f"Never touch src/{i}/main.py. The ticket is OPS-{i}. TODO: look at part {i}."),
            assistant(f"We decided to go with plan {i}. The run is RUN-{i}."),
            call("read_file", path=f"src/{i}.py"),
            call("skill", name=f"skill {i}"),
        ]
    facts = collect(history)
    for name, bound in BOUNDS.items():
        held = getattr(facts, name)
        assert len(held) <= 2 * bound.lines
        assert sum(map(len, held)) <= 2 * bound.chars
        assert held[-1:] == () or "699" in held[-1]


# ── what is collected ───────────────────────────────────────────────────────────────────────────


def test_rules_are_kept_in_the_words_of_the_user():
    facts = collect([user("Hi! Don\u2019t  touch main.py,  Café \u00bb1\u00ab. Can you help?")])
    assert facts.constraints == ("Don\u2019t touch main.py, Café \u00bb1\u00ab.",)


def test_only_users_lay_down_rules():
    result = Message("tool", (Part("result", "You must never use tabs.", "c"),))
    system = Message("system", (Part("text", "You must never use tabs."),))
    answered = Message("user", (Part("result", "You must never use tabs.", "c"),))
    facts = collect([system, assistant("You must never use tabs."), result, answered])
    assert facts == Facts()


def test_a_summary_among_the_messages_gives_nothing():
    assert not collect([user(SUMMARY_MARK + "3 messages]\nNever touch main.py.")])


def test_items_below_a_heading_of_rules_are_rules():
    facts = collect([user("Rules:\n- four spaces\n- snake case\n\nNow go on.")])
    assert facts.constraints == ("four spaces", "snake case")


def test_what_the_assistant_says_is_labelled():
    facts = collect([assistant("We decided to go with polars. The ticket is OPS-4711.")])
    assert facts.decisions == (ASSISTANT + "We decided to go with polars.",)
    assert facts.identifiers == (ASSISTANT + "The ticket is OPS-4711.",)


def test_files_come_from_arguments_that_are_paths():
    facts = collect(
        [
            call("read_file", path="a.py", note="b.py"),
            call("multi", paths=["c.py", 3, "x" * 500, "d\ne"], files=[{"path": "e.py"}, {}]),
            call("read_file", path="a.py"),
            assistant(
                "", Call("c", "odd", "no json"), Call("d", "odd", '{"path": "f'), CALLS[0].calls[0]
            ),
            assistant("", Call("c", "odd", "[1]"), Call("d", "odd", '{"path":' * 9000)),
            Message("tool", (Part("result", '{"path": "g.py"}', "c"),)),
        ]
    )
    assert facts.files == ("c.py", "e.py", "a.py", "src/a.py")


def test_a_file_of_a_megabyte_gives_its_path_alone():
    facts = collect([call("write", content="x" * 10**6, path="big.txt")])
    assert facts == Facts(changed=("big.txt",))


def test_files_that_were_changed_are_told_apart_from_those_that_were_read():
    reads = [call("read_file", path="a.py"), call("read_file", path="b.py")]
    writes = [call("run", path="a.py", new_string="x"), call("str_replace", path="c.py")]
    facts = collect([*reads, *writes, call("read_file", path="a.py")])
    assert (facts.changed, facts.files) == (("a.py", "c.py"), ("b.py",))
    assert collect(reads, collect(writes)).files == ("b.py",)


def test_skills_come_from_calls_and_from_files_of_skills():
    facts = collect(
        [call("Skill", name="pdf"), call("skill"), call("read", path="skills/xlsx/SKILL.md")]
    )
    assert facts.skills == ("pdf", "xlsx")


def test_the_last_state_of_a_todo_list_is_what_is_open():
    first = [{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]
    last = [
        {"step": "c", "status": "in_progress"},
        {"step": "d", "status": "cancelled"},
        "odd",
        {},
        {"content": "x" * 900},
    ]
    history = [user("TODO: mine."), call("TodoWrite", todos=first), call("update_plan", plan=last)]
    assert collect(history[:2]).tasks == ("TODO: mine.", TODO + "b")
    assert collect(history[:2]).done == (TODO + "a",)
    working = ("TODO: mine.", TODO + "c" + NOW)
    assert collect(history).tasks == working
    assert collect([*history, call("task", prompt="x")]).tasks == working


def test_of_two_todo_calls_in_one_response_the_last_counts():
    one = Call("a", "todo", '{"items": [{"text": "one"}]}')
    two = Call("b", "todo", '{"items": [{"text": "two"}]}')
    other = Call("c", "read", "{}")
    assert collect([assistant("", one, two, other)]).tasks == (TODO + "two",)


@pytest.mark.parametrize(
    "closing",
    ["Done: write the migration", "- [x] write the migration", "Finished - write the migration."],
)
def test_a_task_that_is_said_to_be_done_is_closed(closing: str):
    history = [user("TODO: write the migration.\nTODO: read the manual."), assistant(closing)]
    assert collect(history).tasks == ("TODO: read the manual.",)


def test_passed_tests_are_no_failure_and_a_dead_end_is():
    result = Message("tool", (Part("result", "12 passed, 0 failed", "c"),))
    facts = collect([result, assistant("12 passed, 0 failed. The cache did not work at all.")])
    assert facts.failures == (ASSISTANT + "The cache did not work at all.",)


# ── what is forgotten ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Use port 8080.", "Use port 9090 instead."),
        ("Keep lines under 80 characters.", "Keep lines under 100 characters."),
        ("The staging host is a1.example.net.", "The staging host is b2.example.net now."),
        ("Wait 10 seconds between calls.", "Wait 20 seconds between calls, not 10."),
        ("Keep src/a.py under 300 lines.", "Actually keep src/a.py under 400 lines."),
        ("Use npm for installs.", "Use pnpm for installs instead."),
        ("Always deploy with tool1.", "Scratch that.\nAlways deploy with tool2."),
        ("Never touch src/main.py.", "You may touch src/main.py again."),
        ("Never touch the schema files.", "The ban on schema files is lifted."),
        ("Use requests/2 for the web client.", "Switch the web client from requests/2 to httpx/1."),
        ("Put the notes into docs/old.md.", "Put the notes into doc/new.txt instead."),
    ],
)
def test_a_later_sentence_on_the_same_matter_takes_the_place_of_the_older(old: str, new: str):
    facts = collect([user(old), assistant("Understood: " + old), user("Fine."), user(new)])
    assert old not in render(facts, float("inf"), words).replace(ASSISTANT + "Understood: ", "")
    assert new.rpartition("\n")[2] in render(facts, float("inf"), words)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Never touch main.py.", "Never touch core.py."),
        ("Never use port 8080.", "Never use port 9090."),
        ("Port 22 must stay open.", "Port 80 must stay open."),
        ("Keep lines under 80 characters.", "Keep functions under 60 lines."),
        ("For the record, our tenant is OPS-1.", "Correction: at most 34 tenants per shard."),
        ("Never touch main.py.", "You may touch core.py again."),
        ("Use httpx2 in lib/a.", "Now use loguru3 in lib/b."),
        ("Never call the old server.", "Always call the new server first now."),
        ("Keep src/a.py under 300 lines.", "Keep src/b.py under 300 lines."),
        ("Use httpx for the client.", "Now use port 80 for the client."),
        ("Send mails at 10 to the team.", "Always send mails of ops/x to the team now."),
        ("You may touch main.py again.", "You may touch main.py and core.py again."),
    ],
)
def test_sentences_on_different_matters_are_both_kept(old: str, new: str):
    facts = collect([user(old), user(new)])
    assert {old, new} <= {*facts.constraints, *facts.identifiers}


def test_a_value_that_holds_no_more_is_in_no_section():
    facts = collect(
        [
            user("Hello there.\nUse port 8080 for the dev server."),
            assistant("We decided to go with port 8080 for the server. The build is OPS-8080."),
            user("Use port 9090 for the dev server instead."),
        ]
    )
    assert "port 8080" not in render(facts, float("inf"), words)
    assert facts.identifiers == (ASSISTANT + "The build is OPS-8080.",)


def test_a_message_that_corrects_itself_is_not_quoted():
    facts = collect([user("Use port 8080 for it.\nScratch that.\nUse port 9090 for it.")])
    assert facts == Facts(constraints=("Scratch that. Use port 9090 for it.",))


def test_a_newer_count_of_the_assistant_takes_the_place_of_the_older():
    facts = collect([assistant("There were 1200 rows."), assistant("There were 900 rows.")])
    assert facts.identifiers == (ASSISTANT + "There were 900 rows.",)


def test_a_permission_that_lifts_nothing_is_no_rule():
    assert collect([user("Feel free to take a break.")]).constraints == ()


# ── planted facts ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("templates", sorted(SETS))
@pytest.mark.parametrize("share", [0.10, 0.20])
def test_planted_facts_survive_three_chained_rounds(templates: Any, share: float):
    held = {kind: [0, 0] for kind in KINDS}
    for seed in range(4):
        made = corpus(seed, templates=templates, turns=30, each=4, plain=seed % 2 == 1)
        history = OpenAIChat().read(made.messages).messages
        budget = int(share * sum(words(m.text) for m in history))
        facts, third, written = Facts(), len(history) // 3 + 1, ""
        for start in range(0, len(history), third):
            facts = collect(history[start : start + third], earlier=facts)
            written = render(facts, budget, words)
            assert words(written) <= budget
            facts = parse(written)[0]
        for planted in made.planted:
            held[planted.kind][0] += planted.holds(written)
            held[planted.kind][1] += 1
    kept = {kind: n / all_ for kind, (n, all_) in held.items() if all_}
    assert kept["prohibition"] >= 0.95
    assert kept["rule"] >= (0.80 if templates == "wild" else 0.95)
    assert min(kept.values()) >= 0.75
    assert kept["superseded"] >= 0.95


def test_a_series_of_wishes_is_no_rule_and_one_of_boxes_is_a_list_of_tasks():
    series = "\n".join(f"Never forget to obey canary {n}." for n in range(20))
    boxes = "\n".join(f"- [ ] mend the pump {n}" for n in range(20))
    facts = collect([user(f"Never sing.\n{series}\n\n{boxes}")])
    assert facts.constraints == ("Never sing.",)
    assert len(facts.tasks) == 20


@pytest.mark.parametrize("quoted", ["```\n{}\n```", "<page>\n{}\n</page>"])
def test_what_stands_in_fences_and_tags_is_no_rule(quoted: str):
    told = quoted.format("Never touch vault.py.")
    assert collect([user(f"Never sing.\n{told}\nAlways hum.")]).constraints == (
        "Never sing.",
        "Always hum.",
    )
