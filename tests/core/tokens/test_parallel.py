"""What OpenAI's own models are reported to take for calls, and for results handed on as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.support.counting import WordCounter
from ullage.core.dialects.openai_chat import FRAMING, OWN_FRAMING
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.messages.transcript import Transcript
from ullage.core.tokens import parallel
from ullage.core.tokens.counting import Meter, measure

METER = Meter(WordCounter(), OWN_FRAMING)
KOREAN = "테스트 " * 1_000


def call(number: int, name: str, arguments: str) -> dict[str, Any]:
    identity = f"call_{number}8ycVMsW8gdsf7kSXfgAcf1"
    function = {"name": name, "arguments": arguments}
    return {"id": identity, "type": "function", "function": function}


def ask(count: int, name: str, arguments: str, result: str) -> list[dict[str, Any]]:
    """Return that many calls in one message, and their results."""
    calls = [call(number, name, arguments) for number in range(count)]
    answers = [{"role": "tool", "tool_call_id": each["id"], "content": result} for each in calls]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *answers]


def read(messages: list[dict[str, Any]]) -> Transcript:
    return OpenAIChat().read(messages)


@pytest.mark.parametrize(
    ("model", "count", "reported"),
    [
        ("gpt-3.5-turbo", 1, 40),
        ("gpt-3.5-turbo", 2, 89),
        ("gpt-3.5-turbo", 3, 114),
        ("gpt-3.5-turbo", 4, 139),
        ("gpt-3.5-turbo", 5, 164),
    ],
)
def test_calls_take_what_was_reported(model: str, count: int, reported: int):
    # Source: community.openai.com, topic 538914 (2023)
    said = {"role": "user", "content": "How much is 2 plus 2?"}
    found = ullage.count([said, *ask(count, "calculator", '{"a":2, "b":2}', "4")], model=model)
    assert found.low <= reported <= found.high
    assert abs(found.tokens - reported) <= 1


def test_a_call_and_its_result_take_what_was_reported():
    # Source: github.com/forestwanglin/openai-java, issue 5 (2024): 35, which has no room for ids
    asked = ask(1, "get_current_weather", '{\n  "location": "Boston, MA"\n}', "29 degree celcius")
    asked[1]["name"] = "get_current_weather"  # as it was sent
    assert ullage.count(asked, model="gpt-4").tokens == 35
    del asked[1]["name"]  # it stands with the result by its call
    assert ullage.count(asked, model="gpt-4").tokens == 35


def test_results_of_several_calls_in_one_message_are_counted_as_json():
    # Source: community.openai.com, topic 1375117 (2026): 1,121 for one, 39,235 for three
    alone = ullage.count(ask(1, "get", "{}", KOREAN), model="gpt-4.1")
    assert 1_002 < alone.tokens < 1_121
    together = ullage.count(ask(3, "get", "{}", KOREAN), model="gpt-4.1")
    assert 39_003 < together.tokens < 39_235
    assert together.low < 3_121  # should it be mended one day
    apart = [m for number in range(3) for m in ask(1, "get", f'{{"n":{number}}}', KOREAN)]
    for number, message in enumerate(apart):
        if message["role"] == "tool":
            message["tool_call_id"] = apart[number - 1]["tool_calls"][0]["id"] = f"call_{number}"
    assert ullage.count(apart, model="gpt-4.1").high < 3_500


def test_a_model_of_others_is_not_counted_so():
    messages = ask(3, "get", "{}", KOREAN)
    open_weights = ("openai/gpt-oss-120b", "https://api.groq.com/openai/v1")
    local = ("gpt-4.1", "http://127.0.0.1:9/v1")
    for model, url in (("deepseek-chat", None), open_weights, local):
        found = ullage.count(messages, model=model, base_url=url)
        assert found.tokens < 20_000


@pytest.mark.parametrize(
    "text",
    [
        "table\ttest\ttype\ttitle\tstatus\n" * 200,  # a tab and a word are often one token
        json.dumps([{"name": "ada", "city": "Rome"}] * 200, separators=(",", ":")),
        "\x1b[32mok\x1b[0m half \ud83d of a pair\n" * 100,
        "",
    ],
    ids=["tabs", "json", "escapes", "empty"],
)
def test_results_of_parallel_calls_are_counted_as_the_very_strings(text: str):
    together = ullage.count(ask(3, "get", "{}", text), model="gpt-4o")
    empty = ullage.count(ask(3, "get", "{}", ""), model="gpt-4o")
    string = int(ullage.count_text(json.dumps(text), model="gpt-4o"))
    assert together.tokens - empty.tokens == 3 * (
        string - int(ullage.count_text('""', model="gpt-4o"))
    )


TURNS = st.lists(
    st.builds(
        lambda calls, text: (calls, text),
        st.integers(0, 3),
        st.text(alphabet='ab "\\\n테é', max_size=9),
    ),
    min_size=1,
    max_size=6,
)


def write(turns: list[tuple[int, str]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    for turn, (calls, text) in enumerate(turns):
        if not calls:
            messages.append({"role": "assistant", "content": text})
            continue
        made = ask(calls, "get", "{}", text)
        for number, each in enumerate(made[0]["tool_calls"]):
            each["id"] = made[number + 1]["tool_call_id"] = f"{turn}-{number}"
        messages += made
    return messages


@given(TURNS, st.data())
def test_a_history_that_grows_has_the_size_of_one_that_is_read_whole(
    turns: list[tuple[int, str]], data: st.DataObject
):
    messages = write(turns)
    cut = data.draw(st.integers(0, len(messages)))
    codec = OpenAIChat()
    first = codec.read(messages[:cut])
    measure(first, METER)
    grown = codec.read(messages)
    whole = measure(read(messages), METER)
    assert measure(grown, METER).total == whole.total
    assert measure(grown, METER).sizes == whole.sizes


@given(TURNS)
def test_only_results_of_calls_that_share_a_message_are_those_of_parallel_ones(
    turns: list[tuple[int, str]],
):
    messages = write(turns)
    calls = {
        each["id"]: len(message.get("tool_calls", ()))
        for message in messages
        for each in message.get("tool_calls", ())
    }
    several = {
        place
        for place, message in enumerate(messages)
        if calls.get(message.get("tool_call_id"), 0) > 1
    }
    assert parallel.list_parallel(read(messages).messages, METER) == several
    assert not parallel.list_parallel(read(messages).messages, Meter(WordCounter(), FRAMING))


def test_a_result_that_was_edited_is_counted_when_it_is_asked_for():
    message, counter = read(ask(2, "get", "{}", "a é\n")).messages[1], WordCounter()
    assert parallel.count_escaped(message, 0, counter) == counter.count(json.dumps("a é\n"))
    assert parallel.count_escaped(message, 0, counter) == counter.count(json.dumps("a é\n"))


def test_a_result_of_parallel_calls_that_goes_frees_what_it_took():
    said = {"role": "user", "content": "Look at the three pages."}
    rest = {"role": "user", "content": "And now?"}
    messages = [said, *ask(3, "get", '{"path": "a"}', KOREAN), *ask(1, "get", "{}", "ok"), rest]
    messages[5]["tool_calls"][0]["id"] = messages[6]["tool_call_id"] = "call_last"
    target = 30_000  # two of the three results fit: each takes 13,000
    found = ullage.compact(messages, model="gpt-4.1", target_tokens=target)
    kept = [m for m in found.messages if m["role"] == "tool" and KOREAN in m["content"]]
    assert found.reached
    assert found.after.high <= target
    assert len(kept) == 2


@given(TURNS)
def test_a_tally_told_message_by_message_has_the_count_of_the_whole(turns: list[tuple[int, str]]):
    messages = write(turns)
    tally = ullage.Tally(model="gpt-4o")
    for message in messages:
        tally.add(message)
    told, whole = tally.count(), ullage.count(messages, model="gpt-4o")
    assert (told.low, told.tokens, told.high) == (whole.low, whole.tokens, whole.high)
