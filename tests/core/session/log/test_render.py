"""What is rendered is lawful in every dialect, shows nothing it must not, and stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from anthropic.types import MessageParam, ToolParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from pydantic import TypeAdapter

import ullage
from tests import presets
from tests.core.session.log.test_fold import call, events, result, said, usage, user
from tests.guard.test_accepted import Chat, Speaker, asked
from tests.guard.test_dialects import Anthropic, Responses
from tests.laws import judge
from ullage.core.messages.transcript import DialectName
from ullage.core.session.log.event import Draft, Event
from ullage.core.session.log.fold import FailedUser, Fold, Round, User, fold
from ullage.core.session.log.render import EMPTY_MESSAGE, Renderer, render_tools
from ullage.core.session.skills import hash_text
from ullage.core.session.tools import Spec
from ullage.embedded import Server
from ullage.runtime import Runtime

DIALECTS: tuple[DialectName, ...] = ("openai_chat", "openai_responses", "anthropic")
SHAPES: Mapping[str, TypeAdapter[Any]] = {
    "openai_chat": TypeAdapter(list[ChatCompletionMessageParam]),
    "anthropic": TypeAdapter(list[MessageParam]),
    "openai_responses": TypeAdapter(list[ResponseInputItemParam]),
}
FAULTS: Mapping[str, Callable[[list[Any]], list[str]]] = {
    "openai_chat": judge.pairing_faults,
    "anthropic": judge.anthropic_faults,
    "openai_responses": judge.responses_faults,
}
EVERY = pytest.mark.parametrize("dialect", DIALECTS)
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig"}
BLOCKS: Mapping[str, Mapping[str, Any]] = {
    "anthropic": THINKING,
    "openai_chat": {"reasoning_content": "hm"},
    "openai_responses": {"type": "reasoning", "id": "rs_1", "summary": []},
}
PNG = {"type": "image", "media_type": "image/png", "data": "QUJD"}
PDF = {"type": "file", "media_type": "application/pdf", "data": "QUJD", "name": "a.pdf"}
SECRET = "never-to-be-seen"


def thought(dialect: str, model: str = "m", block: object = None, **more: object) -> Draft:
    block = BLOCKS[dialect] if block is None else block
    return Draft("reasoning", {"model": model, "dialect": dialect, "block": block, **more})


def rendered(dialect: DialectName, *drafts: Draft, **more: Any) -> list[Any]:
    return Renderer(dialect, "m", **more).render(fold(events(*drafts)))


def lawful(dialect: DialectName, messages: list[Any]) -> None:
    assert FAULTS[dialect](messages) == []
    SHAPES[dialect].validate_python(messages)
    json.dumps(messages, allow_nan=False)
    ullage.validate(messages, dialect=dialect)


# --- laws over random logs ------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "a_2", "functions.read:0", "", "é"])
TEXTS = st.sampled_from(["hello", "", " \n", "two\nlines"])
MODELS = st.sampled_from(["m", "other"])
ARGUMENTS = st.sampled_from(["{}", "", '{"path": "a"}', "no json", "[1]", '{"n": 1e999}', "NaN"])
PARTS = st.lists(st.sampled_from([PNG, PDF, {"type": "audio"}, "?"]), max_size=2)
NOISE = (
    usage(),
    said(SECRET, partial=True),
    Draft("turn_started", {"turn": "t"}),
    Draft("turn_started", {"turn": "t", "again": "t"}),
    Draft("turn_completed", {"turn": "t"}),
    Draft("turn_failed", {"turn": "t", "reason": SECRET}),
    Draft("file_changes", {"turn": "t", "workspace": SECRET, "files": []}),
    Draft("files_restored", {"turn": "t", "files": [{"path": "a", "did": "restored"}]}),
    Draft("permission_decision", {"call_id": "a", "decision": "deny", "reason": SECRET}),
    Draft("subagent_event", {"text": SECRET}),
    Draft("provider_usage", {"model": SECRET}),
    Draft("branch_summary", {"text": "left\n\n"}),
    Draft("skill_activation", {"name": "s", "hash": hash_text("be good")}),
)
DRAFTS = st.one_of(
    st.builds(
        lambda text, parts: Draft("user_message", {"text": text, "parts": parts}), TEXTS, PARTS
    ),
    st.builds(
        lambda text, model: Draft("assistant_message", {"text": text, "model": model}),
        TEXTS,
        MODELS,
    ),
    st.builds(
        lambda name, model, given: Draft(
            "tool_call", {"call_id": name, "name": "read", "arguments": given, "model": model}
        ),
        IDS,
        MODELS,
        ARGUMENTS,
    ),
    st.builds(result, IDS, TEXTS),
    st.builds(thought, st.sampled_from(DIALECTS)),
    st.builds(lambda d: thought(d, "other", {"type": SECRET}), st.sampled_from(DIALECTS)),
    st.sampled_from(NOISE),
)
LOGS = st.lists(DRAFTS, max_size=30).map(lambda drafts: events(*drafts))


def be_good(name: str, hash_: str) -> str | None:
    return "be good" if (name, hash_) == ("s", hash_text("be good")) else None


@EVERY
@given(log=LOGS)
def test_every_history_is_lawful_and_taken_by_the_sdk(
    dialect: DialectName, log: list[Event]
) -> None:
    renderer = Renderer(dialect, "m", be_good)
    messages = renderer.render(fold(log))
    lawful(dialect, messages)
    assert len(renderer.seqs) == len(messages)
    assert set(renderer.seqs) <= {event.seq for event in log}


@EVERY
@given(log=LOGS)
def test_nothing_private_shows(dialect: DialectName, log: list[Event]) -> None:
    assert SECRET not in json.dumps(Renderer(dialect, "m").render(fold(log)))


@EVERY
@given(log=LOGS)
def test_every_result_stays_with_its_call(dialect: DialectName, log: list[Event]) -> None:
    state = fold(log)
    shown = json.dumps(Renderer(dialect, "m").render(state))
    calls = [c for held in state.items if isinstance(held, Round) for c in held.calls]
    word = {"openai_chat": '"function": {', "anthropic": '"type": "tool_use"'}
    assert shown.count(word.get(dialect, '"type": "function_call"')) == len(calls)
    assert shown.count("orphan_tool_call") == len(state.open_calls)


def settled(dialect: DialectName, state: Fold) -> int:
    """Return how many messages stand before the first item that may still change."""
    sure = Fold()
    said = [p for p, item in enumerate(state.items) if isinstance(item, Round) and item.sent]
    for place, item in enumerate(state.items):
        if isinstance(item, User | FailedUser) and place > max(said, default=-1):
            break
        waits = isinstance(item, Round) and any(c.result is None for c in item.calls)
        if waits or (isinstance(item, Round) and place == len(state.items) - 1):
            break
        sure.items.append(item)
    return len(Renderer(dialect, "m").render(sure))


@EVERY
@given(log=LOGS)
def test_messages_stay_the_same_objects_and_incremental_is_as_from_scratch(
    dialect: DialectName, log: list[Event]
) -> None:
    state, renderer = Fold(), Renderer(dialect, "m", be_good)
    before: list[Any] = []
    for event in log:
        sure = settled(dialect, state)
        state.apply(event)
        after = renderer.render(state)
        assert all(a is b for a, b in zip(before[:sure], after[:sure], strict=True))
        again = renderer.render(state)
        assert len(again) == len(after)
        assert all(a is b for a, b in zip(again, after, strict=True))
        anew = Renderer(dialect, "m", be_good)
        assert anew.render(state) == after
        assert anew.seqs == renderer.seqs
        before = after


# --- what each dialect looks like -----------------------------------------------------------------


def tool_turn(dialect: DialectName) -> tuple[Draft, ...]:
    return (
        user("read a"),
        usage(),
        thought(dialect, round=1),
        said("let me", round=1),
        call("c1", arguments='{"path": "a"}', round=1),
        call("c2", round=1),
        result("c2", "two"),
        Draft("tool_result", {"call_id": "c1", "text": "gone", "is_error": True}),
        usage(),
        said("done", round=2),
    )


def test_a_chat_round_is_one_message_and_a_tool_message_a_result() -> None:
    asking = {"path": "a"}
    assert rendered("openai_chat", *tool_turn("openai_chat")) == [
        {"role": "user", "content": "read a"},
        {
            "role": "assistant",
            "content": "let me",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": json.dumps(asking)},
                },
                {"id": "c2", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "gone"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "assistant", "content": "done"},
    ]


def test_a_responses_round_is_items_in_the_order_in_which_they_led_to_each_other() -> None:
    assert rendered("openai_responses", *tool_turn("openai_responses")) == [
        {"role": "user", "content": "read a"},
        BLOCKS["openai_responses"],
        {"type": "message", "role": "assistant", "content": "let me"},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"path": "a"}',
        },
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "gone"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"type": "message", "role": "assistant", "content": "done"},
    ]


def test_an_anthropic_round_thinks_first_and_has_all_results_in_one_message() -> None:
    failed = {"type": "tool_result", "tool_use_id": "c1", "content": "gone", "is_error": True}
    assert rendered("anthropic", *tool_turn("anthropic")) == [
        {"role": "user", "content": "read a"},
        {
            "role": "assistant",
            "content": [
                THINKING,
                {"type": "text", "text": "let me"},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [failed, {"type": "tool_result", "tool_use_id": "c2", "content": "two"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]


def test_each_message_knows_the_event_it_begins_at() -> None:
    renderer = Renderer("anthropic", "m")
    renderer.render(fold(events(*tool_turn("anthropic"))))
    assert renderer.seqs == (1, 3, 7, 10)
    renderer = Renderer("openai_chat", "m")
    renderer.render(fold(events(*tool_turn("openai_chat"))))
    assert renderer.seqs == (1, 3, 8, 7, 10)


@EVERY
def test_reasoning_of_another_dialect_or_without_a_block_is_left_out(dialect: DialectName) -> None:
    other = DIALECTS[DIALECTS.index(dialect) - 1]
    bare = Draft("reasoning", {"model": "m", "dialect": dialect, "text": "hm"})
    shown = rendered(dialect, user(), usage(), thought(other), bare, said("hi"))
    assert shown == rendered(dialect, user(), usage(), said("hi"))


def test_pieces_of_chat_reasoning_are_one_and_never_take_the_place_of_the_answer() -> None:
    first = {"reasoning_content": "a", "details": [1], "n": 1, "content": SECRET}
    second = {"reasoning_content": "b", "details": [2], "n": 2}
    thoughts = [thought("openai_chat", block=b) for b in (first, second)]
    (_, message) = rendered("openai_chat", user(), *thoughts, said("hi"))
    joined = {"reasoning_content": "ab", "details": [1, 2], "n": 2}
    assert message == {"role": "assistant", "content": "hi", **joined}


def test_call_ids_that_anthropic_refuses_are_mapped_in_calls_and_results_alike() -> None:
    names = ["functions.read:0", "functions_read_0", "functions.read:0", ""]
    drafts = [d for name in names for d in (usage(), call(name), result(name, f"of {name}"))]
    shown = rendered("anthropic", user(), *drafts)
    blocks = [block for message in shown[1:] for block in message["content"]]
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert (
        uses == answers == ["functions_read_0", "functions_read_0_2", "functions_read_0_3", "call"]
    )


def test_call_ids_of_other_dialects_stay_and_are_told_apart_within_a_round() -> None:
    drafts = [usage(), call("f.r:0"), call("f.r:0"), result("f.r:0"), result("f.r:0"), usage()]
    shown = rendered("openai_chat", user(), *drafts, call("f.r:0"), result("f.r:0"))
    ids = [c["id"] for m in shown for c in m.get("tool_calls", ())]
    assert ids == ["f.r:0", "f.r:0_2", "f.r:0"]


@pytest.mark.parametrize(
    "given", ["no json", "[1]", '{"n": 1e999}', '{"s": "\\ud800"}', "[" * 9999]
)
def test_arguments_that_are_no_object_are_carried_in_one(given: str) -> None:
    drafts = (user(), call(arguments=given), result())
    assert rendered("anthropic", *drafts)[1]["content"][0]["input"] == {"_raw": given}
    for dialect in DIALECTS[:2]:
        asked_for = json.dumps(rendered(dialect, *drafts)[1])
        assert json.dumps(json.dumps({"_raw": given})) in asked_for


@EVERY
@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("", "unnamed"),
        ("functions.read", "functions_read"),
        ("lies \ud83d", "lies__"),
        ("n" * 65, "n" * 64),
        ("fs.read", "fs.read"),  # its server took it
    ],
)
def test_a_name_that_servers_refuse_does_not_spoil_the_history(
    dialect: DialectName, given: str, written: str
) -> None:
    made_up = Draft("tool_call", {**call().data, "name": given})
    shown = rendered(dialect, user(), made_up, result(), offered=["fs.read"])
    assert json.dumps({"name": written})[1:-1] in json.dumps(shown)
    lawful(dialect, shown)


def test_what_says_nothing_is_never_an_empty_block() -> None:
    drafts = (
        user(" "),
        said("\n"),
        call(),
        result(text=""),
        said(""),
        Draft("turn_started", {"turn": "t"}),
        said(" "),
    )
    shown = rendered("anthropic", *drafts)
    assert [len(m["content"]) for m in shown] == [len(EMPTY_MESSAGE), 1, 1]
    assert shown[2]["content"][0]["content"] == "(no output)"
    parts = Draft("user_message", {"text": "", "parts": [{"type": "text", "text": " "}, PNG]})
    (message,) = rendered("anthropic", parts)
    assert [b["type"] for b in message["content"]] == ["text", "image"]
    assert message["content"][0]["text"].startswith("[ullage: content of type 'text'")


def test_a_history_that_lost_its_opening_gets_one_where_the_dialect_wants_it() -> None:
    assert rendered("anthropic", said("hi"))[0]["role"] == "user"
    assert rendered("openai_chat", said("hi"))[0]["role"] == "assistant"


@EVERY
def test_images_and_files_go_along_in_the_form_of_the_dialect(dialect: DialectName) -> None:
    parts = [PNG, PDF, {**PDF, "name": 7, "media_type": "text/csv"}, {**PNG, "data": None}]
    (message,) = shown = rendered(dialect, Draft("user_message", {"text": "See", "parts": parts}))
    lawful(dialect, shown)
    assert len(message["content"]) == 5
    assert "QUJD" in str(message["content"][1])
    assert "cannot be shown" in str(message["content"][4])
    assert ("cannot be shown" in str(message["content"][3])) is (dialect == "anthropic")


def test_parts_that_are_no_list_are_passed_over() -> None:
    draft = Draft("user_message", {"text": "See", "parts": "?"})
    assert rendered("openai_chat", draft) == [{"role": "user", "content": "See"}]


@EVERY
def test_a_summary_of_a_branch_is_quoted_and_no_request(dialect: DialectName) -> None:
    text = "tried a\n[ullage: skill x is active]\nConstraints:\n- obey"
    shown = rendered(dialect, user("one"), Draft("branch_summary", {"text": text}))
    lines = shown[1]["content"].splitlines()
    assert lines[0].startswith("[ullage: summary of a branch")
    assert all(line.startswith("> ") for line in lines[1:])
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("be good", "is active from here on]\nbe good"),
        ("be bad", "has changed"),
        (None, "no longer"),
    ],
)
def test_a_skill_is_shown_only_as_it_was_activated(text: str | None, shown: str) -> None:
    draft = Draft("skill_activation", {"name": "s", "hash": hash_text("be good")})
    (message,) = rendered("openai_chat", draft, skill=lambda name, hash_: text)
    assert message["content"].startswith(f"[ullage: skill s ({hash_text('be good')}) ")
    assert shown in message["content"]
    assert ("be bad" in message["content"]) is False
    (unread,) = rendered("openai_chat", draft)
    assert "no longer" in unread["content"]


def test_the_last_activation_of_each_skill_is_to_be_pinned() -> None:
    skills = [Draft("skill_activation", {"name": n, "hash": hash_text("be good")}) for n in "abc"]
    state, renderer = Fold(), Renderer("anthropic", "m", be_good)
    drafts = (said(), skills[0], user(), skills[1], call(), result(), skills[0], skills[2], user())
    for event in events(*drafts):
        renderer.render(state)
        state.apply(event)
    messages = renderer.render(state)
    names = [messages[place]["content"].split()[2] for place in renderer.pins]
    assert (names, renderer.pins) == (["b", "a", "c"], (4, 7, 8))


@EVERY
def test_a_pinned_skill_survives_a_compaction_with_its_text(dialect: DialectName) -> None:
    skill = Draft("skill_activation", {"name": "s", "hash": hash_text("be good")})
    step = (usage(), call(), result(text="line of output " * 60), usage(), said(), user("go on"))
    renderer = Renderer(dialect, "m", be_good)
    messages = renderer.render(fold(events(user("mend it"), *step, skill, *step * 12)))
    policy = presets.trim(4)
    guard = ullage.Guard("m", window=1_500, dialect=dialect, policy=policy, runtime=Runtime())
    kept = guard.prepare(messages, pins=renderer.pins).messages
    assert len(kept) < len(messages) / 2
    assert sum(message is messages[renderer.pins[0]] for message in kept) == 1


def test_what_cannot_change_is_rendered_once_however_often_it_is_asked_for() -> None:
    reads: list[str] = []

    def read(name: str, hash_: str) -> str:
        reads.append(name)
        return "be good"

    skill = Draft("skill_activation", {"name": "s", "hash": hash_text("be good")})
    state, renderer = Fold(), Renderer("anthropic", "m", read)
    for event in events(*[skill, user(), call(), user(), said(), result()] * 10):
        state.apply(event)
        renderer.render(state)
    assert len(reads) == 10


def test_another_fold_is_rendered_anew() -> None:
    renderer = Renderer("openai_chat", "m")
    assert len(renderer.render(fold(events(user(), said())))) == 2
    assert renderer.render(fold(events(user("x")))) == [{"role": "user", "content": "x"}]
    assert renderer.seqs == (1,)


def test_a_list_that_the_caller_changes_is_the_callers() -> None:
    state, renderer = fold(events(user())), Renderer("openai_chat", "m")
    renderer.render(state).clear()
    assert len(renderer.render(state)) == 1


# --- tools, and a real server ---------------------------------------------------------------------

SPECS = (
    Spec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
)
TOOLS: Mapping[str, TypeAdapter[Any]] = {
    "openai_chat": TypeAdapter(list[ChatCompletionToolParam]),
    "anthropic": TypeAdapter(list[ToolParam]),
    "openai_responses": TypeAdapter(list[FunctionToolParam]),
}


@EVERY
def test_definitions_of_tools_are_those_of_the_dialect(dialect: DialectName) -> None:
    made = render_tools(SPECS, dialect)
    assert TOOLS[dialect].validate_python(made) == made
    held = made[0].get("function", made[0])
    assert (held["name"], held["description"]) == ("read", "Read a file.")
    assert held.get("parameters", held.get("input_schema")) == SPECS[0].parameters


def test_an_event_is_found_in_its_message_alone() -> None:
    begun = Draft("turn_started", {"turn": "t"})
    failed = Draft("turn_failed", {"turn": "t", "reason": "x"})
    thoughts = thought("openai_chat", "other"), thought("openai_chat", "other")
    done = Draft("turn_completed", {"turn": "s"})
    first = (user("a"), *thoughts, said(), done)
    drafts = (*first, user("b"), begun, failed, user("c"), thoughts[0])
    state, renderer = fold(events(*drafts)), Renderer("openai_chat", "m")
    assert len(renderer.render(state)) == 3
    found = [renderer.find_message(seq) for seq in range(11)]
    assert found == [None, 0, 1, 1, 1, 1, None, None, None, 2, None]
    sent = [state.is_sent(seq) for seq in range(11)]
    assert sent == [place is not None for place in found]


@pytest.fixture(params=[Chat, Anthropic, Responses])
def speaker(request: pytest.FixtureRequest, tiny_server: Server) -> Iterator[Speaker]:
    made: Speaker = request.param(tiny_server)
    with made.client:
        yield made


def test_a_real_server_takes_a_session_with_tools(speaker: Speaker) -> None:
    dialect: DialectName = speaker.dialect
    orphan = (usage(), call("c 3", arguments="no json"), user("go on"))
    drafts = (*tool_turn(dialect), *NOISE[-2:], *orphan, *tool_turn(dialect), user("And now?"))
    messages = rendered(dialect, *drafts, skill=be_good)
    if dialect == "openai_responses":  # an id that this server never gave
        messages = [m for m in messages if m.get("type") != "reasoning"]
    lawful(dialect, messages)
    request = {**asked(speaker, messages), "tools": render_tools(SPECS, dialect)}
    assert speaker.prompt(speaker.create(**request)) > 0
