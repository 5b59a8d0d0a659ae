"""The Chat Completions codec: what it reads, what it refuses, what it leaves alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naming import plainly
from tests.support.transcripts import broken_histories, histories
from ullage.core.dialects.openai_chat.codec import (
    ROLES,
    Memo,
    OpenAIChat,
)
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages.transcript import Message, Part, digest

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
CALLISH = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "function": st.one_of(
            JSON, st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON})
        ),
        "custom": JSON,
    },
)
MESSAGISH = st.fixed_dictionaries(
    {"role": st.one_of(st.sampled_from(ROLES), JSON)},
    optional={
        "content": st.one_of(
            JSON,
            st.lists(
                st.fixed_dictionaries(
                    {"type": st.sampled_from(["text", "refusal", "image_url", "?"])},
                    optional={"text": JSON, "refusal": JSON},
                ),
                max_size=3,
            ),
        ),
        "tool_calls": st.one_of(JSON, st.lists(CALLISH, max_size=3)),
        "function_call": JSON,
        "tool_call_id": JSON,
        "name": JSON,
        "refusal": JSON,
        "reasoning_content": JSON,
    },
)


def read(*raws: Any) -> tuple[Message, ...]:
    return OpenAIChat().read(raws).messages


def one(raw: Any) -> Message:
    return read(raw)[0]


def part(raw: Any) -> Part:
    (found,) = one({"role": "user", "content": [raw]}).parts
    return found


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "messages",
    [None, 7, "hello", b"hello", {"role": "user", "content": "hi"}, {1, 2}, iter([])],
    ids=lambda value: type(value).__name__,
)
def test_messages_that_are_no_list_are_refused_by_the_name_of_their_type(messages: Any):
    with pytest.raises(MalformedHistoryError, match=type(messages).__name__) as caught:
        OpenAIChat().read(messages)
    assert caught.value.index is None


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "hi",
        3,
        ["role", "user"],
        object(),
        {},
        {"content": "hi"},
        {"role": None},
        {"role": "robot", "content": "hi"},
        {"role": ["user"]},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"text": "hi"}},
        {"role": "user", "content": b"hi"},
        {"role": "user", "content": [{"type": "x", "payload": {(1, 2): 3}}]},
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": "c1"},
        {"role": "assistant", "tool_calls": CALL},
        {"role": "assistant", "tool_calls": [None]},
        {"role": "assistant", "tool_calls": [{"id": "c1"}]},
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": "ls"}]},
    ],
    ids=plainly,
)
def test_what_is_no_message_is_refused_by_its_position(raw: Any):
    with pytest.raises(MalformedHistoryError, match=r"messages\[1\]") as caught:
        read({"role": "user", "content": "hi"}, raw)
    assert caught.value.index == 1


def test_a_part_nested_deeper_than_json_can_carry_is_refused():
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"type": "x", "in": deep}
    with pytest.raises(MalformedHistoryError, match="JSON cannot carry"):
        read({"role": "user", "content": [deep]})
    while deep:  # unwound by hand: a deep structure is freed recursively
        deep = deep["in"]


def test_an_object_whose_dump_is_no_mapping_is_refused():
    class Odd:
        def model_dump(self, **options: Any) -> list:
            return []

    with pytest.raises(MalformedHistoryError, match="Odd, not a message"):
        read(Odd())


@given(st.lists(st.one_of(MESSAGISH, JSON), max_size=4))
def test_any_json_is_read_or_refused_by_a_position_in_the_list(messages: list):
    refused: MalformedHistoryError | None = None
    try:
        assert len(OpenAIChat().read(messages)) == len(messages)
    except MalformedHistoryError as error:
        refused = error
    if refused is not None:
        assert refused.index is not None
        assert f"messages[{refused.index}]" in str(refused)
        OpenAIChat().read(messages[: refused.index])


# ── what is read ────────────────────────────────────────────────────────────────────────────────


@given(st.one_of(histories(unique_ids=False), broken_histories()))
def test_the_callers_objects_ride_along_untouched(history: list):
    before = copy.deepcopy(history)
    found = OpenAIChat().read(history)
    assert history == before
    assert all(kept is given for kept, given in zip(found.raws, history, strict=True))


@given(histories())
def test_a_shared_memo_changes_nothing_but_the_work(history: list):
    codec = OpenAIChat(memo={})
    codec.read(history)
    again = codec.read(copy.deepcopy(history))
    fresh = OpenAIChat().read(history)
    assert [m.digest for m in again.messages] == [m.digest for m in fresh.messages]
    assert [(m.role, m.parts, m.calls, m.name) for m in again.messages] == [
        (m.role, m.parts, m.calls, m.name) for m in fresh.messages
    ]


@given(histories(max_turns=4), st.data())
def test_a_history_that_grew_or_was_changed_in_place_is_read_as_if_new(
    history: list, data: st.DataObject
):
    codec = OpenAIChat()
    for _ in range(3):
        if data.draw(st.booleans()):
            raw = data.draw(st.sampled_from(history))
            for call in raw.get("tool_calls", ()):
                call["function"]["arguments"] = data.draw(st.sampled_from(["{}", "[2]"]))
            raw["content"] = data.draw(st.sampled_from(["changed", None, [{"type": "text"}]]))
        part_of = history[: data.draw(st.integers(0, len(history)))]
        again, fresh = codec.read(part_of), OpenAIChat().read(part_of)
        assert [m.digest for m in again.messages] == [m.digest for m in fresh.messages]
        assert all(kept is given for kept, given in zip(again.raws, part_of, strict=True))


def test_a_plain_message_that_comes_again_is_read_once():
    memo: Memo = {}
    raw = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    first = OpenAIChat(memo).read([raw]).messages[0]
    assert OpenAIChat(memo).read([copy.deepcopy(raw)]).messages[0] is first


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tool_call_id": 1}, {"tool_call_id": True}),
        ({"tool_call_id": "1"}, {"name": "1"}),
        ({"content": None}, {"content": ""}),
    ],
)
def test_messages_that_differ_never_share_a_memo(one: dict, other: dict):
    history = [{"role": "tool", **one}, {"role": "tool", **other}]
    together = OpenAIChat({}).read(history).messages
    alone = [OpenAIChat().read([raw]).messages[0] for raw in history]
    assert together[0] is not together[1]
    assert [m.digest for m in together] == [m.digest for m in alone]


@pytest.mark.parametrize(
    "extra",
    [
        {"x_trace": 1},
        {"refusal": "no"},
        {"tool_calls": [{"id": "c1", "custom": {"name": "sql", "input": "select 1"}}]},
        {"tool_calls": [{"id": 7, "function": {"name": "ls", "arguments": {}}}]},
    ],
    ids=repr,
)
def test_a_message_with_more_than_plain_fields_is_read_anew_each_time(extra: dict):
    memo: Memo = {}
    OpenAIChat(memo).read([{"role": "assistant", "content": "x", **extra}])
    assert not memo


@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_no_content_is_no_parts(content: dict):
    message = one({"role": "assistant", **content, "tool_calls": [CALL]})
    assert message.parts == ()
    assert [(c.id, c.name, c.arguments) for c in message.calls] == [("c1", "ls", "{}")]


@pytest.mark.parametrize(
    ("raw", "kind", "text"),
    [
        ("bare", "text", "bare"),
        ({"type": "text", "text": "hi"}, "text", "hi"),
        ({"type": "input_text", "text": "hi"}, "text", "hi"),
        ({"type": "output_text", "text": "hi"}, "text", "hi"),
        ({"type": "refusal", "refusal": "no"}, "refusal", "no"),
        ({"type": "text"}, "other", '{"type": "text"}'),
        ({"type": "text", "text": 5}, "other", '{"type": "text", "text": 5}'),
        ({"type": "refusal", "refusal": None}, "other", '{"type": "refusal", "refusal": null}'),
        ({"type": "image_url", "image_url": {"url": "u"}}, "image", "u"),
        ({"type": "image_url", "image_url": "u"}, "image", ""),
        ({"type": "input_audio", "input_audio": {"data": "d"}}, "audio", "d"),
        ({"type": "file", "file": {"file_id": "f"}}, "file", "f"),
        ({"type": "file", "file": {"file_data": "d", "file_id": "f"}}, "file", "d"),
        ({"type": "image_url", "refusal": "x"}, "image", ""),
        ({"type": "hologram", "text": "é"}, "other", '{"type": "hologram", "text": "é"}'),
        ({"type": ["text"]}, "other", '{"type": ["text"]}'),
        (7, "other", "7"),
        (None, "other", "null"),
    ],
    ids=repr,
)
def test_each_content_part_is_read_as_its_kind_and_none_is_lost(raw: Any, kind: str, text: str):
    found = part(raw)
    assert (found.kind, found.text) == (kind, text)
    assert (found.media is not None) == (kind in ("image", "audio", "file"))


@pytest.mark.parametrize(
    ("detail", "read_as"), [("low", "low"), ("high", "high"), (None, None), (7, None)]
)
def test_an_image_is_known_by_its_dimensions_and_the_detail_asked_for(
    detail: Any, read_as: str | None
):
    # the smallest GIF: 3 x 5 pixels in its header
    url = "data:image/gif;base64,R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="
    found = part({"type": "image_url", "image_url": {"url": url, "detail": detail}}).media
    assert found is not None
    assert (found.kind, found.width, found.height, found.detail) == ("image", 3, 5, read_as)


def test_another_picture_is_another_conversation():
    one, other = (part({"type": "image_url", "image_url": {"url": u}}) for u in ("a", "b"))
    assert digest("user", (one,)) != digest("user", (other,))


def test_spoken_audio_and_reasoning_items_beside_the_content_are_parts():
    message = one(
        {
            "role": "assistant",
            "content": None,
            "audio": {"id": "audio_1", "data": "UklGRg==", "transcript": "hello"},
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        }
    )
    assert [(p.kind, p.text) for p in message.parts] == [
        ("reasoning", '[{"type": "reasoning.encrypted", "data": "x"}]'),
        ("audio", "audio_1"),
    ]


def test_a_picture_in_a_tool_message_stands_behind_its_text():
    picture = {"type": "image_url", "image_url": {"url": "u"}}
    content = [{"type": "text", "text": "a"}, picture, {"type": "text", "text": "b"}]
    message = one({"role": "tool", "tool_call_id": "c1", "content": content})
    assert [(p.kind, p.text) for p in message.parts] == [("result", "a\nb"), ("image", "u")]
    assert message.results == ("c1",)


def test_a_cache_mark_that_moves_leaves_every_digest_alone():
    marked = {"cache_control": {"type": "ephemeral"}}
    image: dict[str, Any] = {"type": "image_url", "image_url": {"url": "u"}}
    parts = [{"type": "text", "text": "hi"}, image]
    plain = one({"role": "user", "content": parts})
    moved = one({"role": "user", "content": [{**p, **marked} for p in parts], **marked})
    assert moved.digest == plain.digest


def test_a_lone_surrogate_is_read_and_digested():
    assert one({"role": "user", "content": "\ud800"}).digest


def test_a_refusal_and_reasoning_beside_the_content_are_parts():
    message = one(
        {
            "role": "assistant",
            "content": "a",
            "refusal": "b",
            "reasoning_content": "c",
            "reasoning": "d",
        }
    )
    kinds = [("text", "a"), ("refusal", "b"), ("reasoning", "c"), ("reasoning", "d")]
    assert [(p.kind, p.text) for p in message.parts] == kinds


def test_a_tool_message_is_one_result_of_the_call_it_names():
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = one({"role": "tool", "tool_call_id": "c1", "content": content})
    assert message.parts == (Part("result", "a\nb", "c1"),)


def test_a_tool_message_without_an_id_answers_the_empty_id():
    assert one({"role": "tool", "content": "x"}).results == ("",)


def test_a_legacy_function_message_answers_the_legacy_call_of_its_name():
    asked, answered = read(
        {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": "{}"}},
        {"role": "function", "name": "ls", "content": "a.py"},
    )
    assert [(c.id, c.name) for c in asked.calls] == [("ls", "ls")]
    assert (answered.role, answered.results) == ("tool", ("ls",))


def test_a_custom_tool_call_is_read_with_its_input():
    call = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    (found,) = one({"role": "assistant", "tool_calls": [call]}).calls
    assert (found.id, found.name, found.arguments) == ("c1", "sql", "select 1")


def test_arguments_that_are_no_text_are_read_as_their_json():
    call = {"id": 7, "function": {"name": None, "arguments": {"path": "a"}}}
    (found,) = one({"role": "assistant", "tool_calls": [call]}).calls
    assert (found.id, found.name, found.arguments) == ("7", "", '{"path": "a"}')


def test_a_name_that_is_no_text_is_no_name():
    assert one({"role": "user", "content": "x", "name": 5}).name is None
    assert one({"role": "user", "content": "x", "name": "ada"}).name == "ada"


def test_any_mapping_will_do():
    assert one(MappingProxyType({"role": "user", "content": "hi"})).text == "hi"


# ── the objects of the official SDK ─────────────────────────────────────────────────────────────


def sdk_message():
    chat = pytest.importorskip("openai.types.chat")
    return chat.ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [CALL]}
    )


def test_an_sdk_message_reads_like_its_dict():
    raw = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert one(sdk_message()).digest == one(raw).digest


def test_sdk_tool_calls_inside_a_dict_read_like_dicts():
    message = one({"role": "assistant", "content": None, "tool_calls": sdk_message().tool_calls})
    assert message.digest == one(sdk_message()).digest


def test_sdk_objects_are_edited_as_copies():
    message = sdk_message()
    codec = OpenAIChat()
    before = message.model_dump()
    cleared = codec.rewrite(message, {}, {0: "[]"})
    renamed = codec.readdress(message, {0: "c9"})
    mixed = codec.rewrite({"role": "assistant", "tool_calls": message.tool_calls}, {}, {0: "[]"})
    moved = codec.readdress({"role": "assistant", "tool_calls": message.tool_calls}, {0: "c9"})
    assert message.model_dump() == before
    assert cleared["tool_calls"][0]["function"] == {"name": "ls", "arguments": "[]"}
    assert mixed["tool_calls"] == cleared["tool_calls"]
    assert renamed["tool_calls"][0]["id"] == moved["tool_calls"][0]["id"] == "c9"


# ── what is written ─────────────────────────────────────────────────────────────────────────────


@given(histories(), st.data())
def test_a_rewrite_changes_the_named_texts_and_nothing_else(history: list, data: st.DataObject):
    codec = OpenAIChat()
    raw = data.draw(st.sampled_from(history))
    message = codec.read([raw]).messages[0]
    texts = [i for i, p in enumerate(message.parts) if p.kind in ("text", "result")]
    parts = {i: f"new {i}" for i in texts if data.draw(st.booleans())}
    calls = {i: f"[{i}]" for i in range(len(message.calls)) if data.draw(st.booleans())}
    before = copy.deepcopy(raw)
    rewritten = codec.rewrite(raw, parts, calls)
    after = codec.read([rewritten]).messages[0]
    assert raw == before
    assert rewritten is not raw
    assert [p.text for p in after.parts] == [
        parts.get(i, p.text) for i, p in enumerate(message.parts)
    ]
    assert [c.arguments for c in after.calls] == [
        calls.get(i, c.arguments) for i, c in enumerate(message.calls)
    ]
    assert {k: v for k, v in rewritten.items() if k not in ("content", "tool_calls")} == {
        k: v for k, v in raw.items() if k not in ("content", "tool_calls")
    }


def test_a_rewrite_of_a_part_in_a_tuple_of_parts_keeps_the_others():
    content = ({"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "old"})
    new = OpenAIChat().rewrite({"role": "user", "content": content}, {1: "new"}, {})
    assert new["content"] == [content[0], {"type": "text", "text": "new"}]


def test_a_rewrite_reaches_custom_and_legacy_calls():
    raw = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "custom": {"name": "sql", "input": "select 1"}}],
        "function_call": {"name": "ls", "arguments": "{}"},
    }
    both = OpenAIChat().rewrite(raw, {}, {0: "x", 1: "y"})
    assert both["tool_calls"][0] == {"id": "c1", "custom": {"name": "sql", "input": "x"}}
    assert both["function_call"] == {"name": "ls", "arguments": "y"}
    legacy = {"role": "assistant", "content": None, "function_call": raw["function_call"]}
    only = OpenAIChat().rewrite(legacy, {}, {0: "y"})
    assert only == {**legacy, "function_call": {"name": "ls", "arguments": "y"}}


@given(histories(), st.data())
def test_a_readdress_changes_the_named_ids_and_nothing_else(history: list, data: st.DataObject):
    codec = OpenAIChat()
    raw = data.draw(st.sampled_from(history))
    message = codec.read([raw]).messages[0]
    count = len(message.calls) or len(message.results)
    ids = {i: f"new_{i}" for i in range(count)}
    if not ids:
        return
    before = copy.deepcopy(raw)
    moved = codec.read([codec.readdress(raw, ids)]).messages[0]
    assert raw == before
    assert (moved.parts and moved.parts[0].text) == (message.parts and message.parts[0].text)
    assert [c.id for c in moved.calls] or list(moved.results) == list(ids.values())
    assert [(c.name, c.arguments) for c in moved.calls] == [
        (c.name, c.arguments) for c in message.calls
    ]


def test_a_readdress_leaves_calls_that_it_does_not_name_the_same_objects():
    raw = {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "c2"}]}
    new = OpenAIChat().readdress(raw, {1: "c3"})
    assert new["tool_calls"][0] is CALL
    assert new["tool_calls"][1]["id"] == "c3"


def test_a_readdressed_function_result_becomes_a_tool_result():
    raw = {"role": "function", "name": "ls", "content": "a.py"}
    (moved,) = read(OpenAIChat().readdress(raw, {0: "c1"}))
    assert moved.results == ("c1",)
    assert moved.text == "a.py"


def test_authored_messages_are_read_back_as_they_were_meant():
    codec = OpenAIChat()
    said: Mapping = codec.author("user", "hello")
    result: Mapping = codec.author("tool", "done", "c1")
    assert said == {"role": "user", "content": "hello"}
    assert one(result).parts == (Part("result", "done", "c1"),)
