"""Ollama's codec: which call a result belongs to, what is written back, what is refused."""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.laws import ollama as histories
from ullage.core.compaction import edits
from ullage.core.compaction.strategies import strip_media as media
from ullage.core.dialects.ollama_chat.codec import LEFT_OUT, MOST_LEFT_OUT, Key, OllamaChat
from ullage.core.errors import ConfigurationError, MalformedHistoryError
from ullage.core.messages.media import describe, identity
from ullage.core.messages.transcript import Call, Message, Part

GIF = histories.GIF
SAID = {"role": "user", "content": "which files?"}
PICTURE = Part("image", identity(GIF), media=describe("image", GIF))


def asks(*names: str, ids: bool = False) -> dict[str, Any]:
    calls = [{"function": {"name": name, "arguments": {"path": "ä"}}} for name in names]
    given = [{"id": f"call_{i}"} if ids else {} for i in range(len(names))]
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [g | c for g, c in zip(given, calls, strict=True)],
    }


def result(text: str, tool: str | None = None, call: str | None = None) -> dict[str, Any]:
    named = {"tool_name": tool} if tool else {}
    return {"role": "tool", "content": text, **named, **({"tool_call_id": call} if call else {})}


def read(*raws: Any) -> tuple[Message, ...]:
    return OllamaChat().read(raws).messages


def answered(*raws: Any) -> list[str]:
    """Return which call each result belongs to, by the reading."""
    return [name for message in read(*raws) for name in message.results]


class Dumps:
    """Stands for an object of the client: all that is known of one is `model_dump`."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields

    def model_dump(self, **options: Any) -> Any:
        assert options == {"exclude_none": True}
        return self.fields


# --- reading --------------------------------------------------------------------------------------


def test_a_message_has_its_text_its_images_and_its_thinking_as_parts():
    (message,) = read({"role": "user", "content": "see", "images": [GIF], "thinking": "hm"})
    assert message.parts == (Part("text", "see"), PICTURE, Part("reasoning", "hm"))
    assert message.parts[1].media is not None
    assert (message.parts[1].media.width, message.parts[1].media.height) == (3, 5)


@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_a_message_without_content_has_no_text(content: dict[str, Any]):
    assert read({"role": "assistant", **content})[0].parts == ()


def test_a_role_is_taken_in_any_case_as_the_server_does():
    assert [m.role for m in read({"role": "User"}, {"role": "TOOL"})] == ["user", "tool"]


def test_calls_without_ids_are_known_by_their_place_in_the_response():
    one, other = read(asks("ls", "cat"), result("a"), result("b"), asks("ls"))[::3]
    assert one.calls == (
        Call("#0", "ls", '{"path": "ä"}'),
        Call("#1", "cat", '{"path": "ä"}'),
    )
    assert other.calls[0].id == "#0"


def test_calls_with_ids_keep_them_and_one_that_comes_twice_is_known_by_its_place():
    call = {"id": "c", "function": {"name": "ls"}}
    asked = {"role": "assistant", "tool_calls": [call, call, {**call, "id": "#1"}]}
    assert [(c.id, c.arguments) for c in read(asked)[0].calls] == [
        ("c", "{}"),
        ("#1~", "{}"),
        ("#1", "{}"),
    ]


def test_arguments_that_are_text_stay_text():
    asked = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "no"}}]}
    assert read(asked)[0].calls == (Call("#0", "f", "no"),)


def test_results_that_name_nothing_go_by_their_place():
    assert answered(asks("ls", "cat"), result("a"), result("b")) == ["#0", "#1"]


def test_results_that_name_their_tool_go_to_its_next_call():
    asked = asks("ls", "cat", "ls")
    given = [result("1", "cat"), result("2", "ls"), result("3", "ls")]
    assert answered(asked, *given) == ["#1", "#0", "#2"]


def test_a_name_that_no_call_has_goes_by_its_place():
    assert answered(asks("ls"), result("a", "list_files")) == ["#0"]


def test_the_older_field_name_names_the_tool_too():
    assert answered(asks("ls", "cat"), {**result("b"), "name": "cat"}, result("a")) == ["#1", "#0"]


def test_results_that_name_their_call_go_to_it():
    asked = asks("ls", "ls", ids=True)
    given = [result("b", call="call_1"), result("a", call="call_0")]
    assert answered(asked, *given) == ["call_1", "call_0"]


def test_a_call_id_that_nobody_gave_is_passed_over_where_calls_have_none():
    assert answered(asks("ls"), result("a", call="mine")) == ["#0"]


def test_results_behind_the_last_call_are_orphans():
    assert answered(result("stray"), asks("ls"), result("a"), result("b")) == ["", "#0", ""]
    assert answered(asks("ls", ids=True), result("a", call="nobody")) == ["nobody"]
    assert answered(asks("ls"), result("a"), result("b", call="late")) == ["#0", "late"]


def test_two_results_of_a_tool_that_was_called_once_are_two_of_one_call():
    assert answered(asks("ls", "cat"), result("a", "ls"), result("b", "ls")) == ["#0", "#0"]


def test_a_result_brings_its_images():
    message = read(asks("look"), {**result("a"), "images": [GIF]})[1]
    assert message.parts == (Part("result", "a", "#0"), PICTURE._replace(answers="#0"))


def test_a_message_is_known_by_the_same_digest_wherever_its_round_stands():
    turn = [asks("ls", "cat"), result("a"), result("b")]
    alone = [m.digest for m in read(*turn)]
    behind = [m.digest for m in read(SAID, asks("cat"), result("c"), *turn)]
    assert behind[-3:] == alone


def test_thinking_that_comes_and_goes_leaves_the_digest_alone():
    plain = {"role": "assistant", "content": "a"}
    assert read(plain)[0].digest == read({**plain, "thinking": "hm"})[0].digest


def test_objects_of_the_client_are_read_like_mappings():
    call = Dumps({"function": Dumps({"name": "ls", "arguments": {"path": "ä"}})})
    whole = Dumps({"role": "assistant", "content": "", "tool_calls": [call]})
    assert read(whole, result("a"))[0].calls == read(asks("ls"))[0].calls
    assert answered(whole, Dumps(result("a"))) == ["#0"]


def test_messages_read_before_are_not_read_again():
    memo: dict[Key, Message] = {}
    codec = OllamaChat(memo)
    history = [SAID, asks("ls"), result("a")]
    first = codec.read(history).messages
    again = codec.read([*copy.deepcopy(history), asks("ls"), result("a")]).messages
    assert all(a is b for a, b in zip(first, again, strict=False))
    assert again[4] is first[2]
    assert len(memo) == len(history)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ("hi", "messages must be a list of messages, not str"),
        ({"role": "user"}, "messages must be a list of messages, not dict"),
        (7, "messages must be a list of messages, not int"),
        ([SAID, 7], "messages[1] is an int, not a message"),
        ([{"content": "hi"}], "messages[0] has the role None: expected one of system, user"),
        ([SAID, {"role": "robot"}], "messages[1] has the role 'robot'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "content of type list: this API takes"),
        ([{"role": "user", "images": "abc"}], "messages[0] has images of type str"),
        ([{"role": "assistant", "tool_calls": {"a": 1}}], "tool_calls of type dict"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "a tool call without 'function'"),
        ([{"role": "assistant", "tool_calls": ["ls"]}], "a tool call without 'function'"),
    ],
)
def test_what_is_no_message_is_refused_by_its_position(messages: Any, said: str):
    with pytest.raises(MalformedHistoryError) as caught:
        OllamaChat().read(messages)
    assert said in str(caught.value)


@given(data=st.data())
def test_a_history_that_grew_is_read_as_the_whole(data: st.DataObject):
    names = st.sampled_from(["", "a", "b"])
    asked = st.lists(st.tuples(names, st.sampled_from(["ls", "cat"])), max_size=3)
    calls = asked.map(
        lambda made: {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {**({"id": i} if i else {}), "function": {"name": n, "arguments": {}}}
                for i, n in made
            ],
        }
    )
    result = names.map(lambda i: {"role": "tool", "content": "r", "tool_call_id": i})
    history = data.draw(st.lists(calls | result, max_size=10))
    codec = OllamaChat()
    for _ in range(4):
        cut = data.draw(st.integers(0, len(history)))
        again, fresh = codec.read(history[:cut]), OllamaChat().read(history[:cut])
        assert [m.digest for m in again.messages] == [m.digest for m in fresh.messages]
        assert [m.results for m in again.messages] == [m.results for m in fresh.messages]


def test_a_message_that_has_no_fingerprint_is_read_all_the_same():
    frozen = MappingProxyType({"role": "user", "content": "hi"})
    assert read(frozen)[0].parts == (Part("text", "hi"),)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
MESSAGISH = st.fixed_dictionaries(
    {"role": st.one_of(st.sampled_from(["user", "assistant", "tool", "system"]), JSON)},
    optional={
        "content": JSON,
        "thinking": JSON,
        "images": st.one_of(JSON, st.lists(JSON, max_size=2)),
        "tool_calls": st.one_of(
            JSON,
            st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "id": JSON,
                        "function": st.fixed_dictionaries(
                            {}, optional={"name": JSON, "arguments": JSON}
                        ),
                    },
                ),
                max_size=2,
            ),
        ),
        "tool_name": JSON,
        "tool_call_id": JSON,
        "name": JSON,
    },
)


@given(messages=st.lists(MESSAGISH, max_size=4))
def test_anything_is_read_and_repaired_or_refused_with_its_position(messages: list[Any]):
    try:
        mended = ullage.repair(messages, "ollama_chat")
    except MalformedHistoryError as error:
        refused = error
    else:
        assert ullage.repair(mended.messages, "ollama_chat").repairs == ()
        return
    assert refused.index in range(len(messages))


# --- writing --------------------------------------------------------------------------------------


def edited(*raws: Any, edit: edits.Clear) -> Any:
    codec = OllamaChat()
    transcript = codec.read(raws)
    made = edits.apply(transcript, edits.Script.of([edit]), codec).transcript
    assert made.messages[edit.message].results == transcript.messages[edit.message].results
    assert [m.digest for m in made.messages] == [m.digest for m in codec.read(made.raws).messages]
    return made.raws[edit.message]


def test_a_new_text_takes_the_place_of_the_old_and_leaves_the_rest():
    raw = {"role": "user", "content": "long", "images": [GIF], "x_trace": 1}
    assert edited(raw, edit=edits.Clear(0, 0, -1, "short")) == {**raw, "content": "short"}
    assert raw["content"] == "long"


def test_a_result_keeps_its_call_and_loses_its_images_with_its_text():
    raws = (asks("ls", "cat"), result("a"), {**result("b"), "images": [GIF]})
    assert edited(*raws, edit=edits.Clear(2, 0, -1, "-")) == result("-")


def test_a_line_stands_for_an_image_that_was_left_out_and_is_a_part_of_its_own():
    raw = {"role": "user", "content": "see", "images": [GIF, GIF]}
    codec = OllamaChat()
    text = media.MARK.format(kind="image")
    assert text == LEFT_OUT
    made = codec.rewrite(raw, {1: text, 2: text}, {})
    assert made == {"role": "user", "content": f"see\n{LEFT_OUT}\n{LEFT_OUT}"}
    parts = [Part("text", "see"), Part("text", LEFT_OUT), Part("text", LEFT_OUT)]
    assert list(codec.read([made]).messages[0].parts) == parts
    assert codec.rewrite(made, {0: "-"}, {}) == codec.rewrite(raw, {0: "-", 1: text, 2: text}, {})


def test_an_image_of_a_result_makes_way_for_a_line_in_its_text():
    raws = (asks("look"), {**result("a"), "images": [GIF, "other"]})
    made = edited(*raws, edit=edits.Clear(1, 1, -1, LEFT_OUT))
    assert made == {**result(f"a\n{LEFT_OUT}"), "images": ["other"]}


def test_an_image_without_text_makes_way_for_a_line():
    raw = {"role": "user", "images": [GIF]}
    assert edited(raw, edit=edits.Clear(0, 0, -1, LEFT_OUT)) == {
        "role": "user",
        "content": LEFT_OUT,
    }


def test_a_text_of_nothing_but_marks_is_read_in_bounded_parts():
    content = "\n".join([LEFT_OUT] * (MOST_LEFT_OUT + 50))
    parts = read({"role": "user", "content": content})[0].parts
    assert len(parts) == MOST_LEFT_OUT + 1
    assert "\n".join(part.text for part in parts) == content


def test_new_thinking_is_written_as_thinking():
    raw = {"role": "assistant", "content": "a", "thinking": "long"}
    assert edited(raw, edit=edits.Clear(0, 1, -1, "-")) == {**raw, "thinking": "-"}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"path": "b"}', {"path": "b"}),
        ("gone", {"arguments": "gone"}),
        ("[1]", {"arguments": [1]}),
    ],
)
def test_new_arguments_are_an_object_always(text: str, arguments: dict[str, Any]):
    raw = asks("ls", "cat")
    made = edited(raw, result("a"), result("b"), edit=edits.Clear(0, -1, 1, text))
    assert made["tool_calls"][0] is raw["tool_calls"][0]
    assert made["tool_calls"][1] == {"function": {"name": "cat", "arguments": arguments}}


def test_an_authored_message_names_no_call():
    assert OllamaChat().author("user", "hi") == {"role": "user", "content": "hi"}
    assert OllamaChat().author("user", "hi", "#0") == {"role": "tool", "content": "hi"}


def test_a_missing_result_is_written_with_the_name_of_its_tool():
    history = [SAID, asks("ls", "cat"), result("b", "cat"), SAID]
    mended = ullage.repair(history, "ollama_chat")
    (written,) = [m for m, old in zip(mended.messages, mended.origin, strict=True) if old is None]
    assert written["tool_name"] == "ls"
    assert "tool_call_id" not in written
    assert mended.messages.index(written) == 2
    assert [r.fault for r in mended.repairs] == ["missing_result"]


def test_a_missing_result_names_the_call_where_the_call_has_an_id():
    (written,) = ullage.repair([asks("ls", ids=True)], "ollama_chat").messages[1:]
    assert (written["tool_call_id"], written["tool_name"]) == ("call_0", "ls")


def test_a_missing_result_of_a_tool_without_a_name_goes_by_its_place():
    asked = {"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]}
    (written,) = ullage.repair([asked], "ollama_chat").messages[1:]
    assert set(written) == {"role", "content"}


def test_an_orphan_is_left_out_and_a_late_result_moved_to_its_call():
    late = result("a")
    mended = ullage.repair([result("stray"), SAID, asks("ls"), SAID, late], "ollama_chat")
    assert mended.messages == [SAID, asks("ls"), late, SAID]
    assert [r.fault for r in mended.repairs] == ["orphan_result", "misplaced_result"]


def test_calls_and_results_can_be_given_ids():
    codec = OllamaChat()
    assert codec.readdress(result("a"), {0: "c"}) == result("a", call="c")
    asked = codec.readdress(asks("ls", "cat"), {1: "c"})
    assert [call.get("id") for call in asked["tool_calls"]] == [None, "c"]


def test_there_are_no_cache_marks():
    codec = OllamaChat()
    assert codec.mark(SAID) is None
    assert codec.add_mark(SAID, {"cache_control": {}}) is SAID


# --- the public face ------------------------------------------------------------------------------


@given(histories.histories(), st.integers(1, 400))
def test_no_id_that_was_made_up_is_ever_written(history: list[Any], target: int):
    made = ullage.compact(history, target_tokens=target, model="gpt-4o", dialect="ollama")
    assert ids(made.messages) <= ids(history)


def ids(messages: list[Any]) -> set[str]:
    """Return the call ids that stand in messages, in calls and in results."""
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    named = [*(call.get("id") for call in calls), *(m.get("tool_call_id") for m in messages)]
    return {name for name in named if name is not None}


def test_the_dialect_is_counted_and_validated_by_its_name():
    history = [SAID, asks("ls"), result("a " * 300)]
    count = ullage.count(history, model="gpt-4o", dialect="ollama_chat")
    assert 300 <= count.tokens <= count.high
    assert ullage.count(history, model="gpt-4o") == count
    with pytest.raises(MalformedHistoryError):
        ullage.validate([SAID, result("a")], dialect="ollama_chat")


def test_a_guard_hands_out_what_the_client_takes():
    guard = ullage.Guard("qwen3", window=4096, dialect="ollama_chat", runtime=ullage.Runtime())
    kwargs = guard.prepare([SAID], tools=[{"type": "function"}], max_tokens=100).kwargs
    assert kwargs == {
        "messages": [SAID],
        "tools": [{"type": "function"}],
        "options": {"num_predict": 100},
    }


def test_a_guard_learns_from_the_counts_of_an_answer():
    guard = ullage.Guard("qwen3", window=4096, dialect="ollama_chat", runtime=ullage.Runtime())
    found = guard.prepare([SAID]).observe({"prompt_eval_count": 40, "eval_count": 2, "done": True})
    assert found.input_tokens == 40


def test_a_system_prompt_apart_is_refused_by_the_name_of_the_dialect():
    guard = ullage.Guard("qwen3", window=4096, dialect="ollama_chat", runtime=ullage.Runtime())
    with pytest.raises(ConfigurationError, match="read as Ollama's"):
        guard.prepare([SAID], system="be brief")


@given(data=st.data())
def test_two_edits_in_a_row_are_one_edit_of_the_original(data: st.DataObject):
    """Images make way first, then texts: what a checkpoint replays is what was sent."""
    codec = OllamaChat()
    before = codec.read(data.draw(histories.histories(max_turns=3)))
    first = edits.Script.of(
        edits.Clear(index, place, -1, LEFT_OUT)
        for index, message in enumerate(before.messages)
        for place, part in enumerate(message.parts)
        if part.media is not None
    )
    once = edits.apply(before, first, codec)
    places = [(i, p) for i, m in enumerate(once.transcript.messages) for p in range(len(m.parts))]
    chosen = data.draw(st.lists(st.sampled_from(places), max_size=4)) if places else []
    second = edits.Script.of(edits.Clear(index, place, -1, "short") for index, place in chosen)
    twice = edits.apply(once.transcript, second, codec)
    whole = edits.apply(before, edits.compose(first, once, second), codec)
    assert whole.transcript.raws == twice.transcript.raws
