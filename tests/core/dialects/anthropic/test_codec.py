"""The Anthropic codec: every block read and written, what it refuses, what it keeps apart."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naming import plainly
from ullage.core.compaction import laws
from ullage.core.dialects.anthropic.codec import ROLES, Anthropic, Key
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages.media import describe, identity
from ullage.core.messages.transcript import Call, Message, Part, asks

GIF = "R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="  # 3 x 5 pixels
PDF = "JVBERi0xLjQ="
URL = "https://example.org/cat.png"
USE = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "ä"}}
OPEN: dict[str, Any] = {"role": "user", "content": "hi"}

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
TYPES = ["text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"]
BLOCKISH = st.recursive(
    st.one_of(st.text(max_size=4), JSON),
    lambda inner: st.fixed_dictionaries(
        {"type": st.one_of(st.sampled_from(TYPES), JSON)},
        optional={
            "text": JSON,
            "source": st.one_of(
                JSON,
                st.fixed_dictionaries(
                    {"type": st.sampled_from(["base64", "url", "text", "content", "file"])},
                    optional={"data": JSON, "url": JSON, "content": st.lists(inner, max_size=2)},
                ),
            ),
            "content": st.one_of(JSON, st.lists(inner, max_size=2)),
            "title": JSON,
            "tool_use_id": JSON,
            "id": JSON,
            "name": JSON,
            "input": JSON,
            "thinking": JSON,
            "data": JSON,
        },
    ),
    max_leaves=3,
)
MESSAGISH = st.fixed_dictionaries(
    {"role": st.one_of(st.sampled_from(ROLES), JSON)},
    optional={"content": st.one_of(JSON, st.lists(BLOCKISH, max_size=3))},
)


class Dumps:
    """Stands for an SDK object: all that is known of one is `model_dump`."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields

    def model_dump(self, **options: Any) -> Any:
        assert options == {"exclude_none": True}
        return self.fields


def read(*raws: Any) -> tuple[Message, ...]:
    return Anthropic().read(raws).messages


def one(content: Any, role: str = "user") -> Message:
    return read({"role": role, "content": content})[0]


def parts(*blocks: Any) -> tuple[Part, ...]:
    return one(list(blocks)).parts


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t1", **fields}


def base64(data: str, media_type: str = "image/gif") -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "messages",
    [None, 7, "hello", b"hello", OPEN, {1, 2}, iter([])],
    ids=lambda value: type(value).__name__,
)
def test_messages_that_are_no_list_are_refused_by_the_name_of_their_type(messages: Any):
    with pytest.raises(MalformedHistoryError, match=type(messages).__name__) as caught:
        Anthropic().read(messages)
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
        {"role": "tool", "content": "hi"},
        {"role": ["user"]},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"text": "hi"}},
        {"role": "user", "content": b"hi"},
        {"role": "user", "content": [result(content=5)]},
        {"role": "user", "content": [{"type": "x", "payload": {(1, 2): 3}}]},
    ],
    ids=plainly,
)
def test_what_is_no_message_is_refused_by_its_position(raw: Any):
    with pytest.raises(MalformedHistoryError, match=r"messages\[1\]") as caught:
        read(OPEN, raw)
    assert caught.value.index == 1


def test_operator_text_that_opens_the_list_is_refused_with_the_place_where_it_belongs():
    with pytest.raises(MalformedHistoryError, match="pass it as system=") as caught:
        read({"role": "system", "content": "be brief"}, OPEN)
    assert caught.value.index == 0


def test_operator_text_behind_a_user_turn_is_lawful():
    transcript = Anthropic().read([OPEN, {"role": "system", "content": "be brief"}])
    assert transcript.messages[1].is_system
    assert laws.protocol(transcript) == []


@pytest.mark.parametrize(
    ("kind", "slot"), [("x", "in"), ("tool_result", "content"), ("tool_use", "input")]
)
def test_a_block_nested_deeper_than_json_can_carry_is_refused(kind: str, slot: str):
    deep: dict[str, Any] = {"type": "text", "text": ""}
    for _ in range(100_000):
        deep = {"type": "x", slot: [deep]}
    with pytest.raises(MalformedHistoryError, match="JSON cannot carry"):
        read({"role": "user", "content": [{**deep, "type": kind}]})
    while slot in deep:  # unwound by hand: a deep structure is freed recursively
        deep = deep[slot][0]


@given(st.lists(st.one_of(MESSAGISH, JSON), max_size=4))
def test_whatever_arrives_is_read_or_refused_by_name(raws: list[Any]):
    try:
        transcript = Anthropic().read(raws)
    except MalformedHistoryError:
        return
    assert len(transcript) == len(raws)
    for message in transcript.messages:
        assert len(message.digest) == 16
        assert isinstance(message.text, str)


# ── what is read ────────────────────────────────────────────────────────────────────────────────


def test_content_is_a_string_or_blocks_or_nothing():
    assert one("hi").parts == (Part("text", "hi"),)
    assert one([{"type": "text", "text": "hi"}, "there"]).text == "hi\nthere"
    assert one(None).parts == ()
    assert one([]).parts == ()
    assert read({"role": "assistant"})[0].parts == ()


def test_a_call_keeps_its_input_as_json():
    message = one([{"type": "text", "text": "let me see"}, USE], "assistant")
    assert message.calls == (Call("t1", "ls", '{"path": "ä"}'),)
    assert message.parts == (Part("text", "let me see"),)
    assert one([{"type": "tool_use", "id": None}], "assistant").calls == (Call("", "", "{}"),)
    assert one([{"type": "tool_use", "id": 7, "name": "f", "input": "x"}]).calls[0].id == "7"


def test_a_result_is_text_blocks_or_nothing():
    assert parts(result(content="ok", is_error=True)) == (Part("result", "ok", "t1"),)
    assert parts(result()) == (Part("result", "", "t1"),)
    text = {"type": "text", "text": "b"}
    assert parts(result(content=["a", text])) == (Part("result", "a\nb", "t1"),)
    found = {"type": "search_result", "title": "T", "source": "S", "content": [text]}
    assert parts(result(content=[found]))[0].text == json.dumps(found)


def test_media_in_a_result_stand_behind_its_text():
    shot = {"type": "image", "source": base64(GIF)}
    paper = {"type": "document", "title": "Paper", "source": base64(PDF, "application/pdf")}
    read_parts = parts(result(content=[shot, {"type": "text", "text": "done"}, paper]))
    assert read_parts == (
        Part("result", "done\nPaper", "t1"),
        Part("image", identity(GIF), "t1", describe("image", GIF)),
        Part("file", identity(PDF), "t1", describe("file", PDF)),
    )
    screenshot = Anthropic().read([{"role": "user", "content": [result(content=[shot])]}])
    assert not asks(screenshot.messages[0])


def test_an_image_is_described_without_its_bytes_in_the_text():
    (found,) = parts({"type": "image", "source": base64(GIF)})
    assert found.media is not None
    assert (found.kind, found.media.width, found.media.height) == ("image", 3, 5)
    (far,) = parts({"type": "image", "source": {"type": "url", "url": URL}})
    assert (far.text, far.media) == (URL, describe("image", URL))
    (kept,) = parts({"type": "image", "source": {"type": "file", "file_id": "file_1"}})
    assert kept.media == describe("image", "")
    assert "file_1" in kept.text


def test_two_images_are_two_digests():
    one_file, other = (
        one([{"type": "image", "source": {"type": "file", "file_id": f}}]) for f in "ab"
    )
    assert one_file.digest != other.digest
    assert (
        one([{"type": "image", "source": base64(GIF)}]).digest
        != one([{"type": "image", "source": base64(GIF + "AAAA")}]).digest
    )


def test_a_document_of_text_is_text_with_its_title():
    source = {"type": "text", "media_type": "text/plain", "data": "all of it"}
    paper = {"type": "document", "source": source, "title": "T", "context": "C"}
    assert parts(paper) == (Part("text", "T\nC"), Part("text", "all of it"))


def test_a_document_of_blocks_is_read_block_by_block():
    inner = [{"type": "text", "text": "a"}, {"type": "image", "source": base64(GIF)}]
    source = {"type": "content", "content": inner}
    found = parts({"type": "document", "source": source, "title": "T"})
    assert [part.kind for part in found] == ["text", "text", "image"]
    (nested,) = parts(result(content=[{"type": "document", "source": source}]))[1:]
    assert nested.media == describe("file", "")  # the API nests no deeper


def test_thinking_whose_text_is_withheld_is_sealed_in_its_signature():
    block = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    assert parts(block) == (Part("sealed", "c2ln"),)


def test_a_compaction_is_text_that_stands_for_what_is_before_it():
    block = {"type": "compaction", "content": "what was said"}
    assert parts(block) == (Part("compaction", "what was said"),)
    sealed = {**block, "encrypted_content": "c2VhbGVk"}
    assert parts(sealed) == (*parts(block), Part("sealed", "c2VhbGVk"))


def test_a_compaction_that_failed_stands_for_nothing():
    assert parts({"type": "compaction", "content": None}) == ()


def test_thinking_is_reasoning_and_its_signature_is_not_text():
    assert parts(
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
    ) == (Part("reasoning", "hm"), Part("sealed", "c2VjcmV0"))


@pytest.mark.parametrize(
    "block",
    [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "web_fetch_tool_result", "tool_use_id": "s1", "content": {"type": "x"}},
        {"type": "mcp_tool_use", "id": "m1", "name": "f", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "content": "ok"},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "search_result", "source": "s", "title": "t", "content": []},
        {"type": "of next year", "payload": [1, None]},
        {"type": 5},
        {"type": "text", "text": 5},
        {"type": "image"},
        {"type": "image", "source": "bare"},
        5,
    ],
    ids=repr,
)
def test_every_other_block_is_kept_as_its_json(block: Any):
    (found,) = parts(block)
    assert (found.kind, json.loads(found.text)) == ("other", block)


def test_results_alone_are_no_request_and_answer_their_calls():
    transcript = Anthropic().read(
        [
            OPEN,
            {"role": "assistant", "content": [USE, {**USE, "id": "t2"}]},
            {"role": "user", "content": [result(), {**result(), "tool_use_id": "t2"}]},
            {"role": "assistant", "content": "done"},
        ]
    )
    assert transcript.request() == 0
    assert transcript.messages[2].results == ("t1", "t2")
    assert laws.protocol(transcript) == []
    assert [(u.start, u.stop) for u in laws.units(transcript)] == [(0, 1), (1, 3), (3, 4)]


def test_turns_of_one_role_in_a_row_are_lawful_and_the_user_opens():
    reader = Anthropic()
    assert laws.protocol(reader.read([OPEN, OPEN])) == []
    assert laws.protocol(reader.read([{"role": "assistant", "content": "hi"}])) != []


# ── what moves between calls ────────────────────────────────────────────────────────────────────

MARK = {"type": "ephemeral"}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "hi"},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "image", "source": base64(GIF)},
        {"type": "of next year", "payload": 1},
        USE,
        result(content=[{"type": "text", "text": "hi"}]),
    ],
    ids=lambda block: str(block["type"]),
)
def test_a_cache_mark_does_not_change_the_digest(block: dict[str, Any]):
    assert one([block]).digest == one([{**block, "cache_control": MARK}]).digest


def test_reasoning_does_not_change_the_digest():
    said = {"type": "text", "text": "hi"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert one([thought, said], "assistant").digest == one([said], "assistant").digest


# ── SDK objects, and histories that come again ──────────────────────────────────────────────────


def test_objects_of_an_sdk_are_read_whole_or_as_blocks():
    plain = {"role": "assistant", "content": [{"type": "text", "text": "hi"}, USE]}
    blocks = [Dumps(block) for block in plain["content"]]
    for raw in (Dumps(plain), {**plain, "content": blocks}, MappingProxyType(plain)):
        (message,) = read(raw)
        assert message.calls == (Call("t1", "ls", '{"path": "ä"}'),)
        assert message.text == "hi"
    nested = result(content=[Dumps({"type": "text", "text": "ok"})])
    assert parts(nested) == (Part("result", "ok", "t1"),)
    assert parts(Dumps([]))[0].kind == "other"


def test_the_official_sdks_objects_are_read():
    types = pytest.importorskip("anthropic.types")
    response = types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "hi"},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "ä"}},
            ],
            "usage": {"input_tokens": 4, "output_tokens": 2},
        }
    )
    for raw in (response, {"role": "assistant", "content": response.content}):
        (message,) = read(raw)
        assert message.parts == (Part("reasoning", "hm"), Part("text", "hi"))
        assert [call.id for call in message.calls] == ["t1"]


def test_the_callers_objects_ride_along_untouched():
    raws = [OPEN, Dumps({"role": "assistant", "content": None})]
    transcript = Anthropic().read(raws)
    assert all(kept is raw for kept, raw in zip(transcript.raws, raws, strict=True))


def test_content_that_comes_again_is_the_same_message():
    memo: dict[Key, Message] = {}
    history = [
        OPEN,
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [result()]},
    ]
    first = Anthropic(memo).read(history).messages
    again = Anthropic(memo).read(json.loads(json.dumps(history))).messages
    assert all(a is b for a, b in zip(first, again, strict=True))
    as_objects = {"role": "assistant", "content": [Dumps(USE)]}
    assert Anthropic(memo).read([OPEN, as_objects]).messages[1] is first[1]


def test_a_message_changed_in_place_is_read_again():
    reader = Anthropic()
    raw: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    assert reader.read([raw]).messages[0].text == "a"
    raw["content"][0]["text"] = "b"
    assert reader.read([raw]).messages[0].text == "b"


def test_equal_numbers_of_other_types_are_other_content():
    blocks = [{"type": "x", "n": n} for n in (1, 1.0, True)]
    reader = Anthropic()
    found = [reader.read([{"role": "user", "content": [b]}]).messages[0] for b in blocks]
    assert [m.parts[0].text for m in found] == [json.dumps(b) for b in blocks]


def test_what_holds_an_object_is_read_each_time():
    memo: dict[Key, Message] = {}
    raw = {"role": "user", "content": [{"type": "x", "at": object}]}
    assert Anthropic(memo).read([raw]).messages[0].parts[0].kind == "other"
    assert memo == {}


# --- writing --------------------------------------------------------------------------------------

CODEC = Anthropic()
CACHED: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
IMAGE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/gif", "data": GIF},
}
PAPER = {"type": "base64", "media_type": "application/pdf", "data": PDF}
SAID = {"type": "text", "text": "so"}


def rewritten(content: Any, parts: dict[int, str], calls: dict[int, str] | None = None) -> Any:
    raw = {"role": "user", "content": content, "x": 1}
    before = json.dumps(raw)
    made = CODEC.rewrite(raw, parts, calls or {})
    assert json.dumps(raw) == before
    assert made["x"] == 1
    return made["content"]


def test_a_rewritten_result_holds_its_text_alone_and_keeps_what_stands_beside():
    seen = {**result(content=[SAID, IMAGE]), "is_error": True, **CACHED}
    other = result(content="other")
    made = rewritten([other, seen, SAID], {1: "gone"})
    assert made[1] == {**seen, "content": "gone"}
    assert made[0] is other
    assert made[2] is SAID
    assert rewritten([seen, SAID], {2: "new"})[1] == {"type": "text", "text": "new"}


def test_a_rewritten_text_keeps_its_cache_mark_and_loses_its_citations():
    assert rewritten("old", {0: "new"}) == "new"
    assert rewritten("old", {}) == "old"
    block = {"type": "text", "text": "old", "citations": [{"x": 1}], **CACHED}
    assert rewritten([SAID, block], {1: "new"}) == [SAID, {"type": "text", "text": "new", **CACHED}]
    assert rewritten(["old"], {0: "new"}) == [{"type": "text", "text": "new"}]
    assert rewritten([{**IMAGE, **CACHED}], {0: "seen"}) == [
        {"type": "text", "text": "seen", **CACHED}
    ]
    assert CODEC.rewrite({"role": "assistant"}, {}, {})["content"] == []


def test_what_is_seen_in_a_result_can_be_rewritten_alone():
    titled = {"type": "document", "source": PAPER, "title": "T"}
    made = rewritten([result(content=[SAID, IMAGE, titled])], {2: "a paper"})
    source = {"type": "text", "media_type": "text/plain", "data": "a paper"}
    assert made[0]["content"] == [SAID, IMAGE, {**titled, "source": source}]
    made = rewritten([result(content=[SAID, IMAGE, titled])], {1: "a cat"})
    assert made[0]["content"] == [SAID, {"type": "text", "text": "a cat"}, titled]


@pytest.mark.parametrize(
    ("document", "parts", "expected"),
    [
        (
            {"type": "document", "source": PAPER, "title": "T", "context": "C"},
            {0: "about"},
            {"type": "document", "source": PAPER, "context": "about"},
        ),
        (
            {"type": "document", "source": {"type": "text", "data": "long"}, **CACHED},
            {0: "short"},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "short"},
                **CACHED,
            },
        ),
        (
            {"type": "document", "source": {"type": "content", "content": "long"}},
            {0: "short"},
            {
                "type": "document",
                "source": {"type": "content", "content": [{"type": "text", "text": "short"}]},
            },
        ),
        (
            {
                "type": "document",
                "source": {"type": "content", "content": [SAID, IMAGE]},
                "title": 1,
            },
            {1: "seen"},
            {
                "type": "document",
                "source": {"type": "content", "content": [SAID, {"type": "text", "text": "seen"}]},
                "title": 1,
            },
        ),
        (
            {
                "type": "document",
                "source": {"type": "content", "content": [SAID, SAID]},
                "title": "T",
            },
            {2: "new"},
            {
                "type": "document",
                "source": {"type": "content", "content": [SAID, {"type": "text", "text": "new"}]},
                "title": "T",
            },
        ),
    ],
)
def test_a_rewritten_document_keeps_its_form_and_its_other_parts(document, parts, expected):
    before = one([document, SAID]).parts
    made = rewritten([document, SAID], parts)
    assert made == [expected, SAID]
    after = one(made).parts
    assert len(after) == len(before)
    assert {i for i, part in enumerate(after) if part.text != before[i].text} == set(parts)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [('{"a": 1}', {"a": 1}), ("[1]", {"arguments": [1]}), ("gone", {"arguments": "gone"})],
)
def test_rewritten_arguments_are_an_object(arguments, given):
    other = {**USE, "id": "t2"}
    made = rewritten([SAID, other, USE], {}, {1: arguments})
    assert made == [SAID, other, {**USE, "input": given}]
    assert made[1] is other


def test_objects_of_the_sdk_become_plain_only_where_they_are_rewritten():
    blocks = [Dumps(SAID), Dumps(USE)]
    made = CODEC.rewrite(Dumps({"role": "assistant", "content": blocks}), {}, {0: "{}"})
    assert made == {"role": "assistant", "content": [blocks[0], {**USE, "input": {}}]}
    moved = CODEC.readdress({"role": "assistant", "content": blocks}, {0: "t9"})
    assert moved["content"] == [blocks[0], {**USE, "id": "t9"}]
    with pytest.raises(MalformedHistoryError):
        CODEC.rewrite(7, {}, {})


def test_what_is_authored_reads_back():
    assert CODEC.author("user", "hi") == {"role": "user", "content": "hi"}
    (made, failed) = read(CODEC.author("tool", "ok", "t1"), CODEC.answer({}, 0, "no", "t1"))
    assert made.parts == (Part("result", "ok", "t1"),)
    assert (failed.role, failed.results) == ("user", ("t1",))
    assert CODEC.answer({}, 0, "no", "t1")["content"][0]["is_error"] is True


def test_calls_are_readdressed_and_results_where_there_are_none():
    asked = {"role": "assistant", "content": [USE, SAID, {**USE, "id": "t2"}]}
    assert CODEC.readdress(asked, {1: "t9"})["content"][2]["id"] == "t9"
    assert CODEC.readdress(asked, {1: "t9"})["content"][0] is USE
    given = {"role": "user", "content": [result(content="a"), result(content="b")]}
    assert read(CODEC.readdress(given, {1: "t9"}))[0].results == ("t1", "t9")


def test_gathered_results_stand_first_and_are_the_callers_own():
    first, second = result(content="a"), {**result(content="b"), "tool_use_id": "t2"}
    host = {"role": "user", "content": [SAID, second], "x": 1}
    made = CODEC.gather(host, [({"role": "user", "content": [first]}, 0, "t1"), (host, 0, "t3")])
    assert made == {
        "role": "user",
        "x": 1,
        "content": [first, {**second, "tool_use_id": "t3"}, SAID],
    }
    assert made["content"][0] is first
    assert CODEC.gather(host, ()) == {"role": "user", "x": 1, "content": [SAID]}
    assert CODEC.gather({"role": "user", "content": [first]}, ()) is None
    assert CODEC.gather(None, [(host, 0, "t2")]) == {"role": "user", "content": [second]}


def test_an_unchanged_history_survives_a_rewrite_of_nothing():
    history = [OPEN, {"role": "assistant", "content": [SAID, USE]}]
    assert [CODEC.rewrite(raw, {}, {}) for raw in history] == history
