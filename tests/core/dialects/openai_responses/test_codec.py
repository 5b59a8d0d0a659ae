"""The Responses codec: every item read and written, what it refuses, what it keeps apart."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import responses
from pydantic import TypeAdapter

from tests.naming import plainly
from ullage.core.compaction import laws
from ullage.core.dialects.openai_responses.codec import (
    CALLS,
    MEDIA,
    RESULTS,
    ROLES,
    TEXTS,
    Key,
    OpenAIResponses,
)
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages.media import describe, identity
from ullage.core.messages.transcript import Call, Message, Part

GIF = "data:image/gif;base64,R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="  # 3 x 5 pixels
URL = "https://example.org/cat.png"
CALL = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
OPEN: dict[str, Any] = {"role": "user", "content": "hi"}

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
PARTISH = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {"type": st.one_of(st.sampled_from([*sorted(TEXTS), *MEDIA, "refusal"]), JSON)},
        optional={
            "text": JSON,
            "refusal": JSON,
            "image_url": JSON,
            "file_data": JSON,
            "input_audio": st.one_of(JSON, st.fixed_dictionaries({"data": JSON})),
            "detail": JSON,
        },
    ),
)
CONTENTISH = st.one_of(JSON, st.lists(PARTISH, max_size=3))
ITEMISH = st.fixed_dictionaries(
    {},
    optional={
        "type": st.one_of(
            st.sampled_from(["message", "reasoning", "?", *CALLS, *sorted(RESULTS)]), JSON
        ),
        "role": st.one_of(st.sampled_from(ROLES), JSON),
        "id": JSON,
        "call_id": JSON,
        "name": JSON,
        "arguments": JSON,
        "action": JSON,
        "content": CONTENTISH,
        "summary": CONTENTISH,
        "output": CONTENTISH,
        "encrypted_content": JSON,
    },
)


class Dumps:
    """Stands for an SDK object: all that is known of one is `model_dump`."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields

    def model_dump(self, **options: Any) -> Any:
        assert options == {"exclude_none": True}
        return self.fields


def read(*raws: Any) -> tuple[Message, ...]:
    return OpenAIResponses().read(raws).messages


def one(raw: Any) -> Message:
    return read(raw)[0]


def part(raw: Any) -> Part:
    (found,) = one({"role": "user", "content": [raw]}).parts
    return found


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "messages", [None, 7, b"hello", OPEN, {1, 2}, iter([])], ids=lambda value: type(value).__name__
)
def test_an_input_that_is_no_list_is_refused_by_the_name_of_its_type(messages: Any):
    with pytest.raises(MalformedHistoryError, match=type(messages).__name__) as caught:
        OpenAIResponses().read(messages)
    assert caught.value.index is None


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "hi",
        ["role", "user"],
        object(),
        Dumps([]),
        {},
        {"content": "hi"},
        {"id": 5},
        {"type": 5},
        {"type": ["message"], "role": "user"},
        {"type": "message"},
        {"role": "tool", "content": "hi"},
        {"role": ["user"]},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"text": "hi"}},
        {"role": "user", "content": b"hi"},
        {"type": "function_call_output", "call_id": "c1", "output": 5},
        {"type": "reasoning", "summary": 5},
        {"type": "of next year", "payload": {(1, 2): 3}},
    ],
    ids=plainly,
)
def test_what_is_no_item_is_refused_by_its_position(raw: Any):
    with pytest.raises(MalformedHistoryError, match=r"messages\[1\]") as caught:
        read(OPEN, raw)
    assert caught.value.index == 1


def test_an_item_nested_deeper_than_json_can_carry_is_refused():
    deep: dict[str, Any] = {"type": "x_call"}
    for _ in range(100_000):
        deep = {"type": "x_call", "in": deep}
    with pytest.raises(MalformedHistoryError, match="JSON cannot carry"):
        read(deep)
    while "in" in deep:  # unwound by hand: a deep structure is freed recursively
        deep = deep["in"]


@given(st.lists(st.one_of(ITEMISH, JSON), max_size=4))
def test_whatever_arrives_is_read_or_refused_by_name(raws: list[Any]):
    try:
        transcript = OpenAIResponses().read(raws)
    except MalformedHistoryError:
        return
    assert len(transcript) == len(raws)
    for message in transcript.messages:
        assert len(message.digest) == 16
        assert isinstance(message.text, str)


# ── messages ────────────────────────────────────────────────────────────────────────────────────


def test_a_string_is_one_message_of_the_user():
    transcript = OpenAIResponses().read("hi")
    assert transcript.raws == ("hi",)
    assert (transcript.messages[0].role, transcript.messages[0].text) == ("user", "hi")


@pytest.mark.parametrize("role", ROLES)
def test_a_message_needs_no_type(role: str):
    message = one({"role": role, "content": "hi"})
    assert (message.role, message.parts) == (role, (Part("text", "hi"),))
    assert one({"type": "message", "role": role, "content": "hi"}).digest == message.digest


def test_content_is_a_string_or_parts_or_nothing():
    assert one({"role": "user", "content": None}).parts == ()
    assert one({"role": "user"}).parts == ()
    pieces = ["a", *({"type": kind, "text": kind} for kind in sorted(TEXTS))]
    assert one({"role": "user", "content": pieces}).text == "\n".join(["a", *sorted(TEXTS)])
    assert part({"type": "refusal", "refusal": "no"}) == Part("refusal", "no")


@pytest.mark.parametrize(
    "piece",
    [
        {"type": "input_text"},
        {"type": "refusal", "refusal": None},
        {"type": "of next year", "payload": [1]},
        {"type": 5},
        5,
        None,
    ],
    ids=repr,
)
def test_every_other_part_is_kept_as_its_json(piece: Any):
    found = part(piece)
    assert (found.kind, json.loads(found.text)) == ("other", piece)


@pytest.mark.parametrize(
    ("piece", "kind", "source"),
    [
        ({"type": "input_image", "image_url": GIF}, "image", GIF),
        ({"type": "input_image", "image_url": URL}, "image", URL),
        ({"type": "computer_screenshot", "image_url": GIF}, "image", GIF),
        ({"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0="}, "file", "JVBERi0="),
        ({"type": "input_file", "file_url": URL}, "file", URL),
        (
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            "audio",
            "UklGRg==",
        ),
    ],
)
def test_media_are_described_without_their_bytes_in_the_text(piece: Any, kind: Any, source: str):
    assert part(piece) == Part(kind, identity(source), media=describe(kind, source))


def test_an_image_keeps_the_detail_that_was_asked_for():
    found = part({"type": "input_image", "image_url": GIF, "detail": "low"}).media
    assert found is not None
    assert (found.width, found.height, found.detail) == (3, 5, "low")


def test_what_lies_on_the_server_is_known_by_its_id():
    found = part({"type": "input_image", "file_id": "file_1", "detail": "high"})
    assert found.media == describe("image", "", detail="high")
    assert "file_1" in found.text
    assert part({"type": "input_file", "file_id": "a"}) != part(
        {"type": "input_file", "file_id": "b"}
    )


# ── calls, results, reasoning, the rest ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("item", "call"),
    [
        (CALL, Call("c1", "ls", '{"a": 1}')),
        (
            {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"},
            Call("c1", "sql", "select 1"),
        ),
        (
            {"type": "local_shell_call", "id": "i", "call_id": "c1", "action": {"command": ["ls"]}},
            Call("c1", "local_shell", '{"command": ["ls"]}'),
        ),
        (
            {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
            Call("c1", "shell", '{"commands": ["ls"]}'),
        ),
        (
            {"type": "apply_patch_call", "call_id": "c1", "operation": {"path": "a"}},
            Call("c1", "apply_patch", '{"path": "a"}'),
        ),
        (
            {"type": "computer_call", "call_id": "c1", "actions": [{"type": "screenshot"}]},
            Call("c1", "computer", '[{"type": "screenshot"}]'),
        ),
        ({"type": "function_call"}, Call("", "", "")),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_a_call_is_a_message_of_the_assistant(item: Any, call: Call):
    message = one(item)
    assert (message.role, message.parts, message.calls) == ("assistant", (), (call,))


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_a_result_answers_its_call(kind: str):
    message = one({"type": kind, "call_id": "c1", "output": "ok"})
    assert (message.role, message.parts) == ("tool", (Part("result", "ok", "c1"),))


def test_a_result_is_text_parts_or_nothing():
    text = {"type": "input_text", "text": "b"}
    image = {"type": "input_image", "image_url": GIF}
    assert one({**OUTPUT, "output": [text, image, text]}).parts == (
        Part("result", "b\nb", "c1"),
        Part("image", identity(GIF), "c1", describe("image", GIF)),
    )
    assert one({**OUTPUT, "output": None}).parts == (Part("result", "", "c1"),)
    log = {"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    shell = one({"type": "shell_call_output", "call_id": "c1", "output": [log]})
    assert json.loads(shell.text) == log


def test_a_screenshot_is_an_image_of_a_result():
    shot = {"type": "computer_screenshot", "image_url": GIF}
    message = one({"type": "computer_call_output", "call_id": "c1", "output": shot})
    assert message.results == ("c1",)
    assert [p.kind for p in message.parts] == ["result", "image"]


def test_a_local_shells_output_names_its_call_by_id():
    item = {"type": "local_shell_call_output", "id": "c1", "output": "{}"}
    assert one(item).results == ("c1",)


def test_a_reasoning_item_is_what_can_be_read_and_what_is_sealed():
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "content": [{"type": "reasoning_text", "text": "well"}],
        "encrypted_content": "c2VhbGVk",
    }
    assert one(item).parts == (Part("reasoning", "hm\nwell"), Part("sealed", "c2VhbGVk"))
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert one(bare).parts == (Part("reasoning", ""),)
    assert one({**bare, "encrypted_content": "c2VhbGVk"}).parts == (Part("sealed", "c2VhbGVk"),)


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary"])
def test_a_compaction_stands_for_what_is_before_it(kind: str):
    item = {"type": kind, "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
    assert one(item).parts == (Part("compaction", "cmp_1"), Part("sealed", "c2VhbGVk"))
    assert one(item).is_compaction
    assert not one(item).has_reasoning


def test_reasoning_does_not_change_the_digest():
    bare: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
    sealed = {**bare, "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"}
    assert one(bare).digest == one(sealed).digest


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"id": "msg_1"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}},
        {"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": None},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": []},
        {"type": "image_generation_call", "id": "ig_1", "result": "R0lGOA=="},
        {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []},
        {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": "ok"},
        {"type": "next_years_call", "payload": [1, None]},
    ],
    ids=lambda item: item.get("type", "bare reference"),
)
def test_every_other_item_is_kept_as_its_json(item: Any):
    message = one(item)
    (found,) = message.parts
    assert (message.role, found.kind, json.loads(found.text)) == ("assistant", "other", item)


def test_an_unknown_item_keeps_its_role():
    tools = {"type": "additional_tools", "role": "developer", "tools": []}
    assert one(tools).is_system


@pytest.mark.parametrize("mark", ["cache_control", "prompt_cache_breakpoint"])
@pytest.mark.parametrize(
    "piece",
    [
        {"type": "input_text", "text": "hi"},
        {"type": "input_image", "file_id": "f"},
        {"type": "of next year", "payload": 1},
    ],
    ids=lambda piece: piece["type"],
)
def test_a_cache_mark_does_not_change_the_digest(piece: dict[str, Any], mark: str):
    plain, marked = (
        one({"role": "user", "content": [p]})
        for p in (piece, {**piece, mark: {"mode": "explicit"}})
    )
    assert plain.digest == marked.digest


# ── the laws on it ──────────────────────────────────────────────────────────────────────────────


def test_parallel_calls_in_items_of_their_own_are_lawful_and_one_unit():
    second = {**CALL, "call_id": "c2"}
    thought = {"type": "reasoning", "id": "r", "summary": []}
    history = [OPEN, thought, CALL, second, OUTPUT, {**OUTPUT, "call_id": "c2"}, OPEN]
    transcript = OpenAIResponses().read(history)
    assert laws.protocol(transcript) == []
    assert [(u.start, u.stop) for u in laws.units(transcript)] == [(0, 1), (1, 6), (6, 7)]
    assert transcript.request() == 6


# ── SDK objects, and histories that come again ──────────────────────────────────────────────────

ANSWER = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}],
        },
        {**CALL, "id": "fc_1", "status": "completed"},
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        },
    ],
}


def test_the_official_sdks_output_is_read_as_the_next_input():
    output = responses.Response.model_validate(ANSWER).output
    reasoning, message, call, search = read(*output)
    assert reasoning.parts == (Part("reasoning", "hm"),)
    assert (message.role, message.parts) == ("assistant", (Part("text", "hi"),))
    assert call.calls == (Call("c1", "ls", '{"a": 1}'),)
    assert search.parts[0].kind == "other"
    plain = read(*ANSWER["output"])  # type: ignore[misc]  # the table mixes types
    assert [m.digest for m in plain[:3]] == [reasoning.digest, message.digest, call.digest]


def test_objects_of_an_sdk_are_read_whole_or_as_parts():
    plain = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    pieces = [Dumps(piece) for piece in plain["content"]]
    for raw in (Dumps(plain), {**plain, "content": pieces}, MappingProxyType(plain)):
        assert one(raw).text == "hi"


def test_the_callers_objects_ride_along_untouched():
    raws = [OPEN, Dumps(CALL)]
    transcript = OpenAIResponses().read(raws)
    assert all(kept is raw for kept, raw in zip(transcript.raws, raws, strict=True))


def test_content_that_comes_again_is_the_same_message():
    memo: dict[Key, Message] = {}
    history = [OPEN, CALL, OUTPUT]
    first = OpenAIResponses(memo).read(history).messages
    again = OpenAIResponses(memo).read([*json.loads(json.dumps(history)), Dumps(CALL)]).messages
    assert all(a is b for a, b in zip((*first, first[1]), again, strict=True))


def test_a_message_changed_in_place_is_read_again():
    reader = OpenAIResponses()
    raw: dict[str, Any] = {"role": "user", "content": [{"type": "input_text", "text": "a"}]}
    assert reader.read([raw]).messages[0].text == "a"
    raw["content"][0]["text"] = "b"
    assert reader.read([raw]).messages[0].text == "b"


def test_what_holds_an_object_is_read_each_time():
    memo: dict[Key, Message] = {}
    raw = {"type": "next_years_call", "at": object}
    assert OpenAIResponses(memo).read([raw]).messages[0].parts[0].kind == "other"
    assert memo == {}


# --- writing --------------------------------------------------------------------------------------

CODEC = OpenAIResponses()
PICTURE = {"type": "input_image", "image_url": URL}
TEXT = {"type": "input_text", "text": "old", "cache_control": {}}


def rewritten(raw: dict[str, Any], parts: dict[int, str], arguments: str | None = None) -> Any:
    before = json.dumps(raw)
    made = CODEC.rewrite(raw, parts, {} if arguments is None else {0: arguments})
    assert json.dumps(raw) == before
    assert made is not raw
    return made


@pytest.mark.parametrize(
    ("call", "changed"),
    [
        (CALL, {"arguments": "new"}),
        ({"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"}, {"input": "new"}),
        (
            {"type": "local_shell_call", "call_id": "c", "action": {"command": ["a"], "env": {}}},
            {"action": {"command": ["new"], "env": {}}},
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["a"]}},
            {"action": {"commands": ["new"]}},
        ),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {"diff": "d", "path": "p"}},
            {"operation": {"diff": "new", "path": "p"}},
        ),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {"path": "p"}}, {}),
        ({"type": "computer_call", "call_id": "c", "action": {"type": "click"}}, {}),
    ],
)
def test_rewritten_arguments_keep_the_form_of_their_call(call, changed):
    assert rewritten(call, {}, "new") == {**call, **changed}
    assert rewritten(call, {}) == call


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (OUTPUT, "new"),
        ({**OUTPUT, "output": [TEXT, PICTURE]}, "new"),
        ({"type": "local_shell_call_output", "id": "c", "output": "o"}, "new"),
        (
            {
                "type": "shell_call_output",
                "call_id": "c",
                "output": [{"stdout": "o", "stderr": "e", "outcome": {"type": "timeout"}}],
            },
            [{"stdout": "new", "stderr": "", "outcome": {"type": "timeout"}}],
        ),
        (
            {
                "type": "computer_call_output",
                "call_id": "c",
                "output": {"type": "computer_screenshot", "image_url": URL},
            },
            {"type": "computer_screenshot", "image_url": URL},
        ),
    ],
)
def test_a_rewritten_result_keeps_the_form_of_its_kind(output, expected):
    assert rewritten(output, {0: "new"}) == {**output, "output": expected}


def test_what_is_seen_in_a_result_can_be_rewritten_alone():
    made = rewritten({**OUTPUT, "output": [TEXT, PICTURE]}, {1: "a cat"})
    assert made["output"] == [TEXT, {"type": "input_text", "text": "a cat"}]


def test_a_rewritten_message_keeps_its_other_parts_and_marks():
    assert CODEC.rewrite("old", {0: "new"}, {}) == {"role": "user", "content": "new"}
    assert CODEC.rewrite("old", {}, {}) == {"role": "user", "content": "old"}
    assert rewritten(OPEN, {0: "new"}) == {**OPEN, "content": "new"}
    assert rewritten({"role": "user"}, {}) == {"role": "user"}
    message = {"role": "user", "content": [PICTURE, TEXT, "x"]}
    made = rewritten(message, {1: "new"})["content"]
    assert made == [PICTURE, {**TEXT, "text": "new"}, "x"]
    assert made[0] is PICTURE
    assert rewritten(message, {0: "seen"})["content"][0] == {"type": "input_text", "text": "seen"}
    spoken = {"type": "output_text", "text": "old", "annotations": [1], "logprobs": [2]}
    answer = {"role": "assistant", "content": [spoken, {"type": "refusal", "refusal": "no"}]}
    new = {"type": "output_text", "text": "new", "annotations": []}
    assert rewritten(answer, {0: "new", 1: "new"})["content"] == [new, new]


def test_objects_of_the_sdk_become_plain_only_where_they_are_rewritten():
    pieces = [Dumps(TEXT), Dumps(TEXT)]
    made = CODEC.rewrite(Dumps({"role": "user", "content": pieces}), {1: "new"}, {})
    assert made == {"role": "user", "content": [pieces[0], {**TEXT, "text": "new"}]}
    assert CODEC.readdress(Dumps(CALL), {0: "c9"}) == {**CALL, "call_id": "c9"}


def test_what_is_authored_reads_back():
    (made,) = read(CODEC.author("tool", "ok", "c1"))
    assert (made.role, made.parts) == ("tool", (Part("result", "ok", "c1"),))
    assert one(CODEC.author("user", "hi")).text == "hi"


@pytest.mark.parametrize("kind", sorted(CALLS))
def test_a_call_of_any_kind_is_answered_in_the_form_that_it_wants(kind):
    answer = CODEC.answer({"type": kind, "call_id": "c1"}, 0, "lost", "c9")
    (made,) = read(answer)
    assert made.results == ("c9",)
    assert "lost" in made.text or kind == "computer_call"
    TypeAdapter(responses.ResponseInputItemParam).validate_python(answer)
    moved = CODEC.readdress(answer, {0: "c2"})
    assert read(moved)[0].results == ("c2",)
