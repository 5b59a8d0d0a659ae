"""Messages of Converse as the neutral view has them, written back, and an answer put together."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ullage.core.dialects.bedrock_converse import DIALECT
from ullage.core.dialects.bedrock_converse.codec import Converse, join_turns
from ullage.core.dialects.bedrock_converse.render import ConverseForm
from ullage.core.dialects.bedrock_converse.stream import ConverseReader, ConverseWatch
from ullage.core.dialects.form import RenderedCall, RoundParts
from ullage.core.dialects.reply import Delta
from ullage.core.dialects.usage import Usage
from ullage.core.errors import MalformedHistoryError

GIF = "R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="
PICTURE = {"image": {"format": "gif", "source": {"bytes": GIF}}}
POINT = {"cachePoint": {"type": "default"}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def use(name: str, **given: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": name, "name": "f", "input": given}}


def result(name: str, *content: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": name, "content": list(content), "status": "success"}}


def test_every_block_is_read_for_what_it_is() -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    sealed = {"reasoningContent": {"redactedContent": b"x"}}
    history = [
        user(
            {"text": "go"},
            PICTURE,
            {"document": {"name": "d", "source": {"text": "words"}}},
            {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/v"}}}},
            {"image": {"format": "gif", "source": {"bytes": b"GIF89a"}}},
            {"guardContent": {"text": {"text": "x"}}},
            POINT,
        ),
        assistant(thought, sealed, use("a", x=1)),
        user(result("a", {"text": "1"}, {"json": {"y": 2}}, PICTURE)),
    ]
    read = Converse().read(history).messages
    kinds = [part.kind for part in read[0].parts]
    assert kinds == ["text", "image", "text", "file", "image", "other"]
    assert [part.text for part in read[1].parts] == ["hm", "eA=="]
    assert json.loads(read[1].calls[0].arguments) == {"x": 1}
    assert read[2].parts[0].text == '1\n{"y": 2}'
    assert read[2].parts[1].answers == "a"


def test_an_edit_leaves_the_blocks_beside_it() -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    raw = assistant(thought, PICTURE, POINT, {"text": "a"}, use("x", n=1), use("y"))
    new = Converse().rewrite(raw, {0: "h", 1: "[gone]"}, {0: '{"n": 2}', 1: "none"})
    assert new["content"][0]["reasoningContent"]["reasoningText"] == {"text": "h", "signature": "s"}
    assert new["content"][1] == {"text": "[gone]"}
    assert new["content"][2] is raw["content"][2]
    assert new["content"][3] is raw["content"][3]
    assert new["content"][4]["toolUse"]["input"] == {"n": 2}
    assert new["content"][5]["toolUse"]["input"] == {"arguments": "none"}
    assert Converse().rewrite(raw, {0: "h"}, {})["content"][4] is raw["content"][4]
    held = user(result("a", {"text": "1"}, PICTURE))
    assert Converse().rewrite(held, {0: "r"}, {}) == user(result("a", {"text": "r"}))
    seen = Converse().rewrite(held, {1: "[gone]"}, {})
    assert seen == user(result("a", {"text": "1"}, {"text": "[gone]"}))


def test_ids_marks_and_results_are_written() -> None:
    codec = Converse()
    raw = assistant(use("a"), {"text": "x"}, use("b"))
    assert codec.readdress(raw, {1: "c"}) == assistant(use("a"), {"text": "x"}, use("c"))
    assert codec.readdress(user(result("a")), {0: "b"}) == user(result("b"))
    answered = codec.answer(raw, 0, "lost", "a")["content"][0]["toolResult"]
    assert answered["status"] == "error"
    assert codec.author("user", "1", "a")["content"][0]["toolResult"]["toolUseId"] == "a"
    spoken = codec.author("assistant", "x")
    assert codec.mark(spoken) is None
    assert codec.mark(codec.add_mark(spoken, POINT)) == POINT
    host = user(result("a"), {"text": "and"})
    assert codec.gather(host, [(host, 0, "b")]) == user(result("b"), {"text": "and"})
    assert codec.gather(None, []) is None


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ("text", "must be a list"),
        ([{"role": "system", "content": [{"text": "a"}]}], "system="),
        ([{"role": "tool", "content": [{"text": "a"}]}], "expected one of"),
        ([{"role": "user", "content": "a"}], "list of content blocks"),
        ([{"role": "user", "content": ["a"]}], "list of content blocks"),
        ([3], "an int"),
    ],
)
def test_what_is_no_message_is_refused_by_position(history: Any, said: str) -> None:
    with pytest.raises(MalformedHistoryError, match=said):
        Converse().read(history)


def test_messages_of_one_role_are_sent_as_one_and_others_stay_the_same_objects() -> None:
    history = [user({"text": "a"}), user({"text": "b"}), assistant({"text": "c"})]
    made = join_turns(history)
    assert made[0] == user({"text": "a"}, {"text": "b"})
    assert made[1] is history[2]
    assert history[0] == user({"text": "a"})
    assert DIALECT.join_turns is not None
    assert DIALECT.join_turns(made) == made


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"contentBlockDelta": {"delta": fields, "contentBlockIndex": index}}


USED = {"inputTokens": 5, "outputTokens": 2, "totalTokens": 17, "cacheReadInputTokens": 10}


def streamed() -> list[dict[str, Any]]:
    start = {"toolUse": {"toolUseId": "a", "name": "f"}}
    return [
        {"messageStart": {"role": "assistant"}},
        delta(0, reasoningContent={"text": "h"}),
        delta(0, reasoningContent={"text": "m"}),
        delta(0, reasoningContent={"signature": "s"}),
        delta(1, reasoningContent={"redactedContent": b"x"}),
        delta(2, text="a"),
        {"contentBlockStart": {"start": start, "contentBlockIndex": 3}},
        delta(3, toolUse={"input": '{"x"'}),
        delta(3, toolUse={"input": ": 1}"}),
        {"contentBlockStop": {"contentBlockIndex": 3}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": USED, "metrics": {"latencyMs": 1}}},
    ]


WHOLE = {
    "output": {
        "message": assistant(
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"reasoningContent": {"redactedContent": b"x"}},
            {"text": "a"},
            use("a", x=1),
        )
    },
    "stopReason": "tool_use",
    "usage": USED,
}


def test_a_stream_and_a_whole_answer_are_the_same() -> None:
    reader, whole, watch = ConverseReader(), ConverseReader(), ConverseWatch()
    assert all(watch.see(event) for event in streamed())
    shown = [d for event in streamed() for d in reader.take(event)]
    assert shown[-1] == Delta("text_delta", "a")
    whole.take(WHOLE)
    assert reader.reply() == whole.reply()
    reply = reader.reply()
    assert (reply.text, reply.stop, reply.usage) == ("a", "calls", Usage(5, 10, 0, 2))
    assert reply.thoughts == tuple(WHOLE["output"]["message"]["content"][:2])  # type: ignore[index]  # a plain mapping
    assert (watch.ended, Usage.from_report(watch.report)) == (True, reply.usage)
    asked = tuple(RenderedCall(c.id, c.name, c.arguments, 1, 2, "r", True) for c in reply.calls)
    blocks = tuple((0, thought) for thought in reply.thoughts)
    ((_, spoken), (_, results)) = ConverseForm().answer(RoundParts(1, blocks, ("a",), asked))
    assert spoken == WHOLE["output"]["message"]  # type: ignore[index]  # as above
    assert results["content"][0]["toolResult"]["status"] == "error"


def test_an_answer_that_fails_or_says_nothing_is_told() -> None:
    failure = {"throttlingException": {"message": "slow"}}
    reader, watch = ConverseReader(), ConverseWatch()
    assert reader.take(failure) == []
    assert watch.see(failure)
    assert watch.failed["error"]["message"] == "slow"
    assert reader.failed == failure
    assert not watch.see({"type": "ping"})
    assert not watch.see(SimpleNamespace())
    empty = ConverseReader().reply()
    assert (empty.stop, empty.usage) == ("end", None)
    odd = ConverseReader()
    odd.take({"messageStop": {"stopReason": "malformed_tool_use"}})
    assert odd.reply().stop == "other"
    full = ConverseReader()
    full.take({"messageStop": {"stopReason": "model_context_window_exceeded"}})
    assert full.reply().stop == "length"
    assert Usage.from_report({"inputTokens": -1}, dialect="bedrock_converse") is None


def test_the_form_writes_blocks() -> None:
    tool = SimpleNamespace(name="f", description="does", parameters={"type": "object"})
    form = ConverseForm()
    picture = {"type": "image", "media_type": "image/gif", "data": GIF}
    paper = {"type": "file", "media_type": "application/pdf", "data": GIF}
    other = {"type": "file", "media_type": "text/x", "data": GIF}
    parts = [form.part({"type": "text", "text": "a"}), form.part(picture), form.part(paper)]
    assert form.part(other) is None
    assert form.part({"type": "image"}) is None
    made = Converse().read([form.add_text(form.user(parts), "b")]).messages[0]
    assert [part.kind for part in made.parts] == ["text", "image", "file", "text"]
    assert form.tool(tool)["toolSpec"]["name"] == "f"
    assert form.user("a") == user({"text": "a"})
    assert len(form.answer(RoundParts(1, (), ("a",), ()))) == 1
    fine = RenderedCall("a", "f", "{}", 1, 2, "r", False)
    assert (
        "status"
        not in form.answer(RoundParts(1, (), (), (fine,)))[1][1]["content"][0]["toolResult"]
    )


def test_the_value_says_where_and_how() -> None:
    url = DIALECT.endpoint.address("https://h/", "a:0")
    assert url == "https://h/model/a%3A0/converse-stream"
    assert DIALECT.errors.report(400, "c", "x") == {"message": "x"}
    assert "9 tokens > 8" in DIALECT.errors.too_large(9, 8)["message"]
    assert DIALECT.errors.break_off("x", b"") == b'{"message": "x"}'
    is_tool, is_message = DIALECT.shape.is_tool, DIALECT.shape.is_message
    assert is_tool is not None
    assert is_message is not None
    assert is_tool({"toolSpec": {}})
    assert not is_message({"role": "user", "content": [{"type": "text"}]})
    assert isinstance(DIALECT.make_reader("s"), ConverseReader)
    assert isinstance(DIALECT.make_watch(), ConverseWatch)
    assert isinstance(DIALECT.make_form(), ConverseForm)


def test_what_has_other_fields_is_not_taken_for_a_message_of_converse() -> None:
    is_message = DIALECT.shape.is_message
    assert is_message is not None
    assert is_message(user({"text": "a"}))
    assert not is_message({**user({"text": "a"}), "name": "haystack"})
    assert not is_message(SimpleNamespace(role="user", content=[{"text": "a"}]))
