"""Messages and requests as JSON and JSONL, in three dialects."""

from __future__ import annotations

import json

import pytest

from tests.importers.writing import lines, said
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.importers import parse
from ullage.importers.requests import continues

GO = {"role": "user", "content": "go"}
DONE = {"role": "assistant", "content": "done"}
MORE = {"role": "user", "content": "more"}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def asked(*messages, usage=None, **fields):
    pair = {"request": {"model": "m", "messages": list(messages), **fields}}
    return {**pair, "response": {"usage": usage}} if usage is not None else pair


def used(prompt):
    return {"prompt_tokens": prompt, "completion_tokens": 5}


def document(value, **how):
    return parse(json.dumps(value, indent=1).encode(), **how)


def test_a_list_of_messages_is_a_window_without_calls():
    session = document([GO, CALL, RESULT])
    assert (session.source, session.dialect) == ("chat", "openai_chat")
    assert session.messages == (GO, CALL, RESULT)
    assert (session.turns, session.tokens, session.start) == ((), None, 0)


def test_a_request_gives_its_system_tools_model_and_cap():
    session = document(
        {"model": "m", "max_tokens": 512, "system": "Be brief.", "messages": [GO],
         "tools": [{"name": "f", "input_schema": {}}]}
    )  # fmt: skip
    assert (session.source, session.dialect) == ("anthropic", "anthropic")
    assert (session.system, session.max_tokens, session.model) == ("Be brief.", 512, "m")
    assert session.tools == ({"name": "f", "input_schema": {}},)
    assert session.turns == ()


def test_a_responses_request_is_read_by_its_input():
    session = document({"input": "go", "instructions": "Be brief.", "max_output_tokens": 9})
    assert (session.source, session.dialect) == ("responses", "openai_responses")
    assert said(session.messages) == ["go"]
    assert (session.system, session.max_tokens) == ("Be brief.", 9)
    item = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    assert document({"input": [item]}).messages == (item,)


def test_the_source_that_is_named_beats_the_shape():
    session = document([GO], source="anthropic")
    assert (session.source, session.dialect) == ("anthropic", "anthropic")
    assert document([GO]).dialect == "openai_chat"


def test_lines_of_messages_are_one_window():
    session = parse(lines(GO, CALL, RESULT))
    assert session.messages == (GO, CALL, RESULT)
    assert session.turns == ()


def test_one_message_alone_is_a_window():
    assert document(GO).messages == (GO,)


def test_a_logged_pair_tells_what_its_prompt_took():
    session = document(asked(GO, usage=used(40)))
    assert [(turn.start, turn.stop, turn.tokens) for turn in session.turns] == [(0, 1, 40)]
    assert (session.tokens, session.covered, session.spent) == (40, 1, Usage(40, 0, 0, 5))


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 0}, "?"])
def test_a_pair_without_a_usable_report_is_of_unknown_size(usage):
    session = document(asked(GO, usage=usage))
    assert (len(session.turns), session.tokens, session.covered) == (1, None, None)


def test_requests_that_continue_each_other_are_turns_of_one_window():
    session = parse(
        lines(
            asked(GO, usage=used(40)),
            asked(GO, DONE, MORE, usage=used(60)),
            {**asked(GO, DONE, MORE, CALL, RESULT), "timestamp": "later"},
        )
    )
    assert session.messages == (GO, DONE, MORE, CALL, RESULT)
    assert [(t.start, t.stop, t.tokens) for t in session.turns] == [
        (0, 1, 40),
        (0, 3, 60),
        (0, 5, None),
    ]
    assert (session.tokens, session.covered) == (60, 3)
    assert session.turns[-1].at == "later"


def test_a_request_that_has_less_of_the_same_conversation_was_compacted():
    session = parse(lines(asked(GO, DONE, MORE, usage=used(90)), asked(GO, MORE, usage=used(50))))
    assert [turn.compacted for turn in session.turns] == [False, True]
    assert (session.start, session.messages[3:]) == (3, (GO, MORE))
    assert (session.tokens, session.covered) == (50, 5)


def test_requests_of_other_conversations_are_left_out_and_the_last_one_shown():
    batch = [
        {"custom_id": str(n), "method": "POST", "body": {"model": "m", "messages": [message]}}
        for n, message in enumerate([GO, MORE, DONE])
    ]
    session = parse(lines(*batch))
    assert session.messages == (DONE,)
    assert len(session.turns) == 1
    assert session.warnings == ("2 requests of other conversations are left out",)


def test_a_response_of_a_batch_has_a_body_of_its_own():
    pair = {
        "body": {"messages": [GO]},
        "response": {"status_code": 200, "body": {"usage": used(8)}},
    }
    assert document(pair).tokens == 8


def test_values_that_are_no_messages_are_counted():
    assert document([GO, 3, "x"]).unread == {"message that is no object": 2}
    session = parse(lines(GO, {"type": "ping"}) + b"{oops\n" + b'{"cut')
    assert session.unread == {
        "ping": 1,
        "line that is no JSON object": 1,
        "half-written last line": 1,
    }


def test_messages_too_deep_to_be_compared_are_of_another_conversation():
    one: list = []
    other: list = []
    for _ in range(100_000):
        one, other = [one], [other]
    assert not continues([one], [other], 0)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"messages": []},
        {"messages": "go"},
        {"request": {}, "response": {}},
        3,
        "go",
        [1],
        None,
    ],
)
def test_anything_else_is_refused_with_what_was_expected(value):
    with pytest.raises(ConfigurationError, match="expected a list of messages"):
        document(value)


def test_messages_and_requests_in_one_file_are_refused():
    with pytest.raises(ConfigurationError, match="messages and requests, line by line"):
        parse(lines(GO, {"messages": [GO]}))
