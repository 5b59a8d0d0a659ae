"""Contents of Gemini as the neutral view has them, written back, and an answer put together."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from google.genai import types

from ullage.core.dialects.form import RenderedCall, RoundParts
from ullage.core.dialects.gemini import DIALECT
from ullage.core.dialects.gemini.codec import Gemini
from ullage.core.dialects.gemini.render import GeminiForm
from ullage.core.dialects.gemini.stream import GeminiReader, GeminiWatch
from ullage.core.dialects.reply import Delta
from ullage.core.dialects.usage import Usage
from ullage.core.errors import MalformedHistoryError

GIF = "R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def call(name: str, call_id: str | None = None, **args: Any) -> dict[str, Any]:
    given = {} if call_id is None else {"id": call_id}
    return {"functionCall": {**given, "name": name, "args": args}, "thoughtSignature": "c2ln"}


def result(name: str, text: str, call_id: str | None = None) -> dict[str, Any]:
    given = {} if call_id is None else {"id": call_id}
    return {"functionResponse": {**given, "name": name, "response": {"output": text}}}


def test_results_without_ids_go_by_name_and_then_by_place() -> None:
    history = [
        user({"text": "go"}),
        model(call("a"), call("b"), call("a")),
        user(result("b", "2"), result("a", "1"), result("a", "3"), result("a", "4")),
    ]
    read = Gemini().read(history).messages
    assert [c.id for c in read[1].calls] == ["#0", "#1", "#2"]
    assert read[2].results == ("#1", "#0", "#2", "#2")


def test_results_with_ids_go_by_these() -> None:
    turn = [user({"text": "go"}), model(call("a", "x")), model(call("a", "y"))]
    read = Gemini().read([*turn, user(result("a", "2", "y"), result("a", "1", "z"))]).messages
    assert read[3].results == ("y", "z")


def test_a_result_of_nothing_keeps_its_own_id() -> None:
    read = Gemini().read([user(result("a", "1", "z"), result("b", "2"))]).messages
    assert read[0].results == ("z", "")


def test_a_history_that_grew_is_read_as_a_whole_one() -> None:
    history = [
        user({"text": "go"}),
        model(call("a")),
        model(call("b")),
        user(result("a", "1"), result("b", "2")),
        model({"text": "so"}),
        user({"text": "on"}),
        model(call("b")),
        user(result("b", "3")),
    ]
    codec = Gemini()
    for end in range(1, len(history) + 1):
        assert codec.read(history[:end]).messages == Gemini().read(history[:end]).messages


def test_both_spellings_and_the_objects_of_the_sdk_read_alike() -> None:
    wire = user(
        {"text": "see"},
        {"inlineData": {"mimeType": "image/gif", "data": GIF}},
        {"fileData": {"mimeType": "audio/wav", "fileUri": "https://example.org/a"}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/b"}},
    )
    content = types.Content.model_validate(wire)
    one, two = Gemini().read([wire, content]).messages
    assert one == two
    assert [part.kind for part in one.parts] == ["text", "image", "audio", "file"]
    assert Gemini().read([user("hi")]).messages[0].text == "hi"


def test_thoughts_code_and_results_with_media_are_read() -> None:
    shown = {"inlineData": {"mimeType": "image/gif", "data": GIF}}
    held = {"functionResponse": {"name": "a", "response": {"x": 1}, "parts": [shown, {"text": ""}]}}
    code = {"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "s"}
    history = [user({"text": "go"}), model(call("a")), user(held), model(code)]
    history[1]["parts"].insert(0, {"text": "hm", "thought": True})
    read = Gemini().read(history).messages
    assert read[1].parts[0].kind == "reasoning"
    assert [(p.kind, p.answers) for p in read[2].parts] == [("result", "#0"), ("image", "#0")]
    assert read[2].parts[0].text == '{"x": 1}'
    assert "thoughtSignature" not in read[3].parts[0].text
    new = Gemini().rewrite(history[2], {1: "[gone]"}, {})
    assert new["parts"][0]["functionResponse"]["parts"] == [{"text": "[gone]"}, {"text": ""}]
    new = Gemini().rewrite(history[2], {0: "[gone]"}, {})
    assert new["parts"][0]["functionResponse"] == {
        "name": "a",
        "response": {"output": "[gone]"},
    }


def test_an_edit_keeps_signatures_and_the_parts_beside_it() -> None:
    blob = {"inlineData": {"mimeType": "image/gif", "data": GIF}, "thoughtSignature": "s"}
    raw = model({"text": "a", "thought_signature": b"s"}, call("f", x=1), call("g"), blob)
    new = Gemini().rewrite(raw, {0: "b", 1: "[gone]"}, {0: '{"x": 2}', 1: "none"})
    assert new["parts"][0] == {"text": "b", "thought_signature": b"s"}
    assert new["parts"][1]["functionCall"]["args"] == {"x": 2}
    assert new["parts"][2]["functionCall"]["args"] == {"arguments": "none"}
    assert new["parts"][3] == {"text": "[gone]", "thoughtSignature": "s"}
    same = Gemini().rewrite(raw, {0: "b"}, {})
    assert same["parts"][1] is raw["parts"][1]
    bare = Gemini().rewrite(user({"fileData": {"fileUri": "u"}}), {0: "[gone]"}, {})
    assert bare["parts"] == [{"text": "[gone]"}]


def test_ids_of_the_neutral_view_are_never_written() -> None:
    codec = Gemini()
    raw = codec.readdress(model(call("a"), {"text": "x"}, call("b", "y")), {0: "#4", 1: "z"})
    assert "id" not in raw["parts"][0]["functionCall"]
    assert raw["parts"][2]["functionCall"]["id"] == "z"
    assert codec.readdress(user(result("a", "1", "x")), {0: "y"})["parts"][0] == result(
        "a", "1", "y"
    )
    assert codec.answer(model(call("a")), 0, "lost", "#0")["parts"] == [
        {"functionResponse": {"name": "a", "response": {"error": "lost"}}}
    ]
    assert codec.author("user", "1", "x")["parts"][0]["functionResponse"]["id"] == "x"
    assert codec.author("assistant", "a") == model({"text": "a"})
    assert codec.mark(raw) is None
    assert codec.add_mark(raw, {}) is raw
    host = user(result("a", "1", "x"), {"text": "and"})
    made = codec.gather(host, [(host, 0, "y")])
    assert made == user(result("a", "1", "y"), {"text": "and"})
    assert codec.gather(None, []) is None


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ("text", "must be a list"),
        ([{"role": "system", "parts": []}], "system_instruction"),
        ([{"role": "tool", "parts": []}], "expected one of"),
        ([{"role": "user", "parts": "text"}], "expected a list"),
        ([{"role": "user", "parts": [3]}], "an int"),
        ([{"role": "user", "content": "hi"}], "not a message of any dialect"),
        ([3], "an int"),
        ([user({"functionResponse": {"name": "a", "parts": [3]}})], "an int"),
    ],
)
def test_what_is_no_content_is_refused_by_position(history: Any, said: str) -> None:
    with pytest.raises(MalformedHistoryError, match=said):
        Gemini().read(history)


def chunk(*parts: Any, reason: str = "", **more: Any) -> dict[str, Any]:
    ended = {"finishReason": reason} if reason else {}
    return {"candidates": [{"content": model(*parts), **ended}], **more}


USED = {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}


def test_an_answer_is_put_together_and_written_back_with_its_signatures() -> None:
    reader, watch = GeminiReader("s"), GeminiWatch()
    events = [
        chunk({"text": "h", "thought": True}),
        chunk({"text": "m", "thought": True}, {"text": "", "thought": True}),
        chunk({"text": "a"}, {"text": "b", "thoughtSignature": "c2ln"}, call("f", x=1)),
        chunk({"functionCall": {"name": "g"}}, {"other": 1}, reason="STOP", usageMetadata=USED),
    ]
    assert all(watch.see(event) for event in events)
    shown = [delta for event in events for delta in reader.take(event)]
    assert shown[0] == Delta("reasoning_delta", "h")
    reply = reader.reply()
    assert (reply.text, reply.stop, reply.usage) == ("ab", "calls", Usage(9, 0, 0, 2, 3))
    assert [json.loads(made.arguments) for made in reply.calls] == [{"x": 1}, {}]
    assert (watch.ended, watch.begun, reader.ended) == (True, True, True)
    assert Usage.from_report(watch.report) == reply.usage
    asked = tuple(
        RenderedCall(c.id, c.name, c.arguments, 1, 2, "r", n == 1)
        for n, c in enumerate(reply.calls)
    )
    blocks = tuple((0, thought) for thought in reply.thoughts)
    ((_, spoken), (_, results)) = GeminiForm().answer(RoundParts(1, blocks, ("ab",), asked))
    assert spoken["parts"][0] == {"text": "hm", "thought": True}
    assert spoken["parts"][-2]["thoughtSignature"] == "c2ln"
    assert "thoughtSignature" not in spoken["parts"][-1]
    assert results["parts"][1]["functionResponse"]["response"] == {"error": "r"}
    types.Content.model_validate(spoken)


def test_an_answer_that_is_blocked_or_fails_says_so() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}}
    reader, watch = GeminiReader(), GeminiWatch()
    reader.take(blocked)
    assert watch.see(blocked)
    assert watch.report == {"usageMetadata": {}}
    assert (reader.reply().stop, reader.ended, reader.reply().usage) == ("filter", True, None)
    assert not watch.see({"type": "message_start"})
    assert watch.see({"usageMetadata": USED, "candidates": []})
    failed = GeminiReader()
    assert failed.take({"error": {"code": 500}}) == []
    assert failed.failed is not None
    assert failed.reply().stop == "end"
    odd = GeminiReader()
    odd.take(chunk({"text": "a"}, reason="LANGUAGE"))
    assert odd.reply().stop == "other"


def test_the_form_writes_what_the_sdk_takes() -> None:
    tool = SimpleNamespace(name="f", description="does", parameters={"type": "object"})
    form = GeminiForm()
    picture = {"type": "image", "media_type": "image/gif", "data": GIF}
    parts = [form.part({"type": "text", "text": "a"}), form.part(picture)]
    assert form.part({"type": "image"}) is None
    spoken = form.add_text(form.user(parts), "b")
    types.Content.model_validate(spoken)
    types.Tool.model_validate(form.tool(tool))
    assert form.user("a") == user({"text": "a"})
    assert len(form.answer(RoundParts(1, (), ("a",), ()))) == 1
    made = Gemini().read([spoken]).messages[0]
    assert [part.kind for part in made.parts] == ["text", "image", "text"]


def test_the_value_says_where_and_how() -> None:
    address = DIALECT.endpoint.address
    streamed = "/models/g:streamGenerateContent?alt=sse"
    assert address("https://h/", "models/g") == f"https://h/v1beta{streamed}"
    assert address("https://h/v1", "g") == f"https://h/v1{streamed}"
    assert DIALECT.errors.report(404, "", "x")["error"]["status"] == "NOT_FOUND"
    assert "(9)" in DIALECT.errors.too_large(9, 8)["error"]["message"]
    assert DIALECT.errors.break_off("x", b"").startswith(b"data: {")
    is_tool = DIALECT.shape.is_tool
    assert is_tool is not None
    assert is_tool({"function_declarations": []})
    assert isinstance(DIALECT.make_reader("s"), GeminiReader)
    assert isinstance(DIALECT.make_watch(), GeminiWatch)
    assert isinstance(DIALECT.make_form(), GeminiForm)


def test_a_report_that_is_malformed_is_none() -> None:
    assert Usage.from_report({"promptTokenCount": 1, "cachedContentTokenCount": 2}) is None


def test_a_content_that_holds_an_object_is_read_each_time_anew() -> None:
    part = types.Part(text="hi")
    assert Gemini().read([{"role": "user", "parts": [part]}]).messages[0].text == "hi"


def test_an_edit_of_a_call_keeps_the_media_of_results_beside_it() -> None:
    shown = {"inlineData": {"mimeType": "image/gif", "data": GIF}}
    response = {"name": "a", "response": {}, "parts": [shown, shown]}
    raw = user({"functionResponse": response})
    new = Gemini().rewrite(raw, {2: "[gone]"}, {})
    assert new["parts"][0]["functionResponse"]["parts"] == [shown, {"text": "[gone]"}]
