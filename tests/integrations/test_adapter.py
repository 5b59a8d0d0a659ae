"""The mapping that all adapters share: the framework's own objects come back, and state travels."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integrations.scenario import WORDS
from ullage import Guard
from ullage.core.errors import ConfigurationError, ContextTooLargeError, StoreError
from ullage.integrations.adapter import TOOLS, Adapter, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_chat
from ullage.storage import MemoryStore, open_store

WINDOW = 3_000


def notes(words: int, *, seed: int) -> str:
    """Return so many words, alike for one seed."""
    return " ".join(random.Random(seed).choices(WORDS, k=words))


@dataclass(frozen=True)
class Turn:
    """A message of a made-up framework: several messages of the dialect in one."""

    rows: tuple[tuple[str, str], ...]


def write_turn(turn: Turn) -> list[Any]:
    made = []
    for role, text in turn.rows:
        if role == "call":
            function = {"name": "look", "arguments": json.dumps({"at": text})}
            call = {"id": text, "type": "function", "function": function}
            made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif role.startswith("tool "):
            made.append({"role": "tool", "tool_call_id": role[5:], "content": text})
        else:
            made.append({"role": role, "content": text})
    return made


def read_turn(raws: Sequence[Any], source: Turn | None) -> Turn:
    rows = []
    for raw in raws:
        calls = raw.get("tool_calls")
        if calls:
            rows.append(("call", calls[0]["id"]))
        elif raw["role"] == "tool":
            rows.append((f"tool {raw['tool_call_id']}", raw["content"]))
        else:
            rows.append((raw["role"], raw["content"]))
    return Turn(tuple(rows))


FORM = MessageForm(write_turn, read_turn)


def make_history(turns: int, first: int = 0) -> list[Turn]:
    """Return turns of a person, and of a call with its result and an answer in one object."""
    made = []
    for number in range(first, first + turns):
        made.append(Turn((("user", f"look at berth {number}"),)))
        result = f"berth {number}: " + notes(60, seed=number)
        rows = (
            ("call", f"c{number}"),
            (f"tool c{number}", result),
            ("assistant", f"seen {number}"),
        )
        made.append(Turn(rows))
    return [*made, Turn((("user", "go on"),))]


def make_adapter(**options: Any) -> Adapter[Turn]:
    return Adapter(FORM, "m", window=WINDOW, **options)


def count_words(turns: Sequence[Turn]) -> int:
    return sum(len(text.split()) for turn in turns for _, text in turn.rows)


def test_a_history_that_fits_comes_back_as_the_very_objects():
    history = make_history(2)
    fitted = make_adapter().open().fit(history, {"system": "be brief"})
    assert len(fitted.messages) == len(history)
    assert all(a is b for a, b in zip(fitted.messages, history, strict=True))
    assert not fitted.is_new


def test_what_no_edit_touches_is_the_very_object_and_what_one_does_keeps_its_place():
    history = make_history(40)
    fitted = make_adapter().open().fit(history, {"system": "be brief"})
    assert fitted.is_new
    assert count_words(fitted.messages) < count_words(history)
    kept = [turn for turn in fitted.messages if any(turn is own for own in history)]
    assert kept[-1] is history[-1]
    assert [history.index(turn) for turn in kept] == sorted(history.index(t) for t in kept)
    assert not any(role == "system" for turn in fitted.messages for role, _ in turn.rows)


def test_a_message_that_is_edited_in_part_is_read_with_the_message_that_it_was():
    sources: list[Turn | None] = []

    def read(raws: Sequence[Any], source: Turn | None) -> Turn:
        sources.append(source)
        return read_turn(raws, source)

    history = make_history(40)
    Adapter(MessageForm(write_turn, read), "m", window=WINDOW).open().fit(history)
    assert None in sources
    assert any(source is not None and source in history for source in sources)


def test_pins_are_positions_of_the_frameworks_messages():
    history = make_history(40)
    fitted = make_adapter().open().fit(history, {"pins": [3], "system": "be brief"})
    assert any(turn is history[3] for turn in fitted.messages)


@pytest.mark.parametrize("pin", [-1, 3, "0"])
def test_a_pin_that_is_no_position_is_refused(pin: Any):
    with pytest.raises(ConfigurationError, match="pin"):
        make_adapter().open().fit(make_history(1), {"pins": [pin]})


def test_after_going_back_the_shorter_history_is_sent_and_searched():
    session = make_adapter().open("a")
    history = make_history(40)
    session.fit(history)
    back = [*history[:20], Turn((("user", "go another way"),))]
    fitted = session.fit(back)
    assert fitted.messages[-1] is back[-1]
    assert fitted.view.messages == make_adapter().open("b").fit(back).view.messages
    assert "berth 30" not in session.answer("ullage_search", {"query": "berth 30"})


def test_a_second_try_hands_out_the_very_objects():
    session, history = make_adapter().open(), make_history(12)
    sent: list[Any] = []

    async def run() -> Any:
        first = await session.afit(history)

        async def send(fitted: Any) -> str:
            sent.append(fitted)
            return "fine"

        return await session.aretry(send, first, OverflowedError(), report=lambda _: None)

    made = asyncio.run(run())
    assert made[0] == "fine"
    assert made[1].is_new
    assert sum(any(turn is own for own in history) for turn in sent[0].messages) > 1


def test_a_failure_that_another_try_does_not_mend_is_none():
    session = make_adapter().open()

    async def run() -> Any:
        first = await session.afit(make_history(1))
        return await session.aretry(
            lambda fitted: asyncio.sleep(0), first, ValueError("no"), report=lambda _: None
        )

    assert asyncio.run(run()) is None


def test_an_awaited_request_is_the_same():
    history = make_history(40)
    awaited = asyncio.run(make_adapter().open().afit(history))
    assert awaited.messages == make_adapter().open().fit(history).messages


class OverflowedError(Exception):
    """What a server says of too many tokens."""

    status_code = 400

    def __init__(self) -> None:
        text = "This model's maximum context length is 2000 tokens."
        super().__init__(text)
        self.body = {"error": {"message": text, "code": "context_length_exceeded"}}


def make_server() -> tuple[list[int], Any]:
    """Return the sizes that were sent, and a function that refuses the first of them."""
    sent: list[int] = []

    def send(fitted: Any) -> str:
        sent.append(count_words(fitted.messages))
        if len(sent) == 1:
            raise OverflowedError
        return "fine"

    return sent, send


def test_after_an_overflow_less_is_sent_and_the_limit_is_remembered():
    sent, send = make_server()
    session = make_adapter().open()
    history = make_history(12)
    answer, fitted = session.call(send, history, report=lambda _: report_chat(1_500, 3))
    assert answer == "fine"
    assert fitted.is_new
    assert sent[1] < sent[0]
    assert count_words(session.fit(history).messages) <= sent[1]


def test_the_output_that_a_framework_asks_for_stays_free():
    session, history = make_adapter().open(), make_history(8)
    plain = session.fit(history).view.prepared
    room = WINDOW - plain.count.high
    kept = session.fit(history, {"reserve": 2 * room}).view.prepared
    assert plain.checkpoint is None
    assert kept.count.high + 2 * room <= WINDOW
    assert kept.max_tokens is None


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ((), None),
        ((None, {}), None),
        (({"max_tokens": None}, {"max_tokens": 300}), 300),
        (({"max_tokens": 300, "max_completion_tokens": 200},), 200),
        ((SimpleNamespace(max_output_tokens=64), {"max_tokens": 9}), 64),
        (({"num_predict": -1}, SimpleNamespace(max_tokens=7.0)), 7),
        (({"max_tokens": "many"},), None),
        (({"num_predict": 900, "max_new_tokens": 4_096},), None),
        (({"max_tokens": True}, {"max_tokens": float("inf")}, {"max_tokens": 5}), 5),
    ],
)
def test_the_most_of_an_answer_is_found_by_the_names_of_frameworks(places: Any, found: int | None):
    assert find_output(*places) == found


def test_a_state_is_of_lists_dicts_and_plain_values():
    session = make_adapter().open("a")
    session.call(lambda _: "fine", make_history(40), report=lambda _: report_chat(2_000, 3))
    session.call(lambda _: "fine", make_history(41), report=lambda _: report_chat(2_100, 3))
    kinds: set[type] = set()

    def walk(value: Any) -> None:
        kinds.add(type(value))
        for inner in value.values() if isinstance(value, dict) else value:
            kinds.add(type(inner))
            if isinstance(inner, dict | list):
                walk(inner)

    state = session.dump()
    walk(state)
    assert kinds <= {dict, list, str, int, float, bool, type(None)}
    assert state is not None
    assert state["conversations"][0]["learned"]["calibration"] is not None


def test_an_awaited_call_recovers_as_well():
    sent, send = make_server()

    async def asend(fitted: Any) -> str:
        return str(send(fitted))

    made = make_adapter().open().acall(asend, make_history(12), report=lambda _: report_chat(9, 9))
    assert asyncio.run(made)[0] == "fine"
    assert sent[1] < sent[0]


def test_an_answer_without_usage_teaches_nothing():
    session = make_adapter().open()
    assert session.call(lambda _: "fine", make_history(1), report=lambda _: None)[0] == "fine"


def test_an_error_that_is_no_overflow_goes_to_the_caller():
    def send(_: Any) -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        make_adapter().open().call(send, make_history(1), report=lambda _: None)


def test_a_session_goes_on_elsewhere_with_the_same_prompt():
    history = make_history(40)
    session = make_adapter().open("a")
    before = session.fit(history).messages
    state = json.loads(json.dumps(session.dump()))
    again = make_adapter().open("a")
    again.load(state)
    longer = [*history[:-1], *make_history(1, first=40)]
    assert again.fit(longer).messages[: len(before) - 1] == before[:-1]
    assert find_reference(before)
    assert again.answer("ullage_recall", {"reference": find_reference(before)}).startswith("[")


def test_a_state_does_not_grow_with_turns_in_which_nothing_is_compacted():
    session = Adapter(FORM, "m", window=400_000).open("a")
    sizes = []
    for turns in (1, 2, 30):
        session.call(lambda _: "fine", make_history(turns), report=lambda _: report_chat(900, 3))
        sizes.append(len(json.dumps(session.dump())))
    assert sizes[2] < sizes[0] * 1.2


def find_reference(messages: Sequence[Turn]) -> str:
    words = " ".join(text for turn in messages for _, text in turn.rows).replace(".", " ").split()
    return next(word.strip(";,()[]") for word in words if word.startswith("u:"))


def test_only_the_state_of_its_own_session_is_handed_out():
    adapter = make_adapter()
    adapter.open("a").fit(make_history(40))
    adapter.open("b").fit(make_history(2, first=50))
    held = adapter.open("b").dump()
    assert held is not None
    assert held["checkpoints"] == []
    assert held["originals"] == {}
    assert adapter.open().dump() is None


def test_one_session_does_not_find_the_words_of_another():
    adapter = make_adapter()
    history = make_history(40)
    history[1] = Turn((("call", "c0"), ("tool c0", "the zephyrine lamp"), ("assistant", "seen 0")))
    adapter.open("a").fit(history)
    adapter.open("b").fit(make_history(40, first=50))
    assert "zephyrine" in adapter.open("a").answer("ullage_search", {"query": "zephyrine"})
    assert "zephyrine" not in adapter.open("b").answer("ullage_search", {"query": "zephyrine"})


def test_one_session_does_not_read_the_references_of_another():
    adapter = make_adapter()
    sent = adapter.open("a").fit(make_history(40)).messages
    adapter.open("b").fit(make_history(40, first=50))
    asked = {"reference": find_reference(sent)}
    assert adapter.open("a").answer("ullage_recall", asked).startswith("[")
    assert "is no reference of this conversation" in adapter.open("b").answer(
        "ullage_recall", asked
    )


def test_a_tool_that_does_not_know_the_model_finds_what_its_session_left_out():
    adapter = Adapter(FORM, window=WINDOW)
    history = make_history(40)
    history[1] = Turn((("call", "c0"), ("tool c0", "the zephyrine lamp"), ("assistant", "seen 0")))
    sent = adapter.open("a", model="gpt-4o", base_url="http://127.0.0.1:9/v1").fit(history).messages
    (_, read), (_, look) = adapter.make_functions(lambda: adapter.open("a"))
    assert "zephyrine" in look("zephyrine")
    assert read(find_reference(sent)).startswith("[")


def test_the_tools_are_functions_that_a_model_may_call_wrongly():
    adapter = make_adapter()

    def find() -> GuardedSession[Turn]:
        return adapter.open("a")

    (spec, read), (_, look) = adapter.make_functions(find)
    assert [spec.name for spec, _ in adapter.make_functions(find)] == [s.name for s in TOOLS]
    assert read.__name__ == spec.name
    assert read("u:0000000000000000", limit=5).startswith("error")
    assert look("").startswith("error")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("text", "version None"),
        ({"version": 7}, "version 7"),
        ({"version": 1, "checkpoints": [3]}, "damaged"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused_with_the_way_out(state: Any, words: str):
    with pytest.raises(StoreError, match=words):
        make_adapter().open("a").load(state)


def test_a_state_is_taken_in_once():
    session = make_adapter().open("a")
    session.load(None)
    session.load({"version": 7})  # the session has gone on since: nothing is read


def test_a_store_of_the_program_keeps_the_state_itself(tmp_path: Any):
    store = open_store(f"sqlite:{tmp_path / 'store.db'}")
    try:
        session = make_adapter(store=store).open("a")
        session.load({"version": 7})
        session.fit(make_history(40))
        assert session.dump() is None
    finally:
        store.close()


def test_the_model_of_the_framework_has_a_guard_of_its_own():
    adapter = Adapter(FORM, store=MemoryStore())
    small = adapter.open("a", model="gpt-4", base_url=None)
    large = adapter.open("a", model="gpt-4o")
    assert small is adapter.open("a", model="gpt-4")
    assert (small.window, large.window) == (8_192, 128_000)
    assert make_adapter().open(model="gpt-4").guard.model == "m"


@pytest.mark.parametrize("key", [None, "", lambda: "made anew", 7])
def test_a_key_that_is_no_text_is_none(key: Any):
    adapter = make_adapter()
    assert adapter.open("a", api_key=key) is adapter.open("a")


def test_a_key_that_is_kept_as_a_secret_is_read():
    adapter, secret = make_adapter(), SimpleNamespace(get_secret_value=lambda: "k")
    assert adapter.open("a", api_key=secret) is adapter.open("a", api_key="k")


def test_the_oldest_session_goes_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ullage.integrations.adapter.MOST_SESSIONS", 2)
    adapter = make_adapter()
    first = adapter.open("a")
    adapter.open("b")
    assert adapter.open("a") is first
    adapter.open("c")
    assert adapter.open("a") is first
    tools = [[object()] for _ in range(3)]
    for each in tools:
        adapter.define(each, id)
    assert adapter.define(tools[0], id) == [id(tools[0][0])]


def test_definitions_are_made_once_for_the_same_tools():
    adapter, made = make_adapter(), []
    tools = [object(), object()]

    def convert(tool: object) -> str:
        made.append(tool)
        return "definition"

    assert adapter.define(tools, convert) is adapter.define(list(tools), convert)
    assert made == tools
    assert adapter.define([], convert) is None


def test_a_message_is_counted_offline():
    assert make_adapter().count(make_history(1)) > 60


def test_an_instruction_alone_over_the_window_is_refused_before_the_send():
    with pytest.raises(ContextTooLargeError):
        make_adapter().open().fit(make_history(1), {"system": notes(6_000, seed=1)})


def test_the_dialect_is_the_frameworks():
    with pytest.raises(ConfigurationError, match="dialect"):
        make_adapter(dialect="anthropic")


def test_operator_text_stands_beside_the_messages_where_the_dialect_has_it():
    form = MessageForm(write_turn, read_turn, "anthropic")
    history = [Turn((("user", "go on"),))]
    view = Adapter(form, "claude-sonnet-4-5").open().fit(history, {"system": "be brief"}).view
    assert view.kwargs["system"] == "be brief"


@dataclass(frozen=True)
class Bundle:
    """A message of another made-up framework: whatever it holds, it keeps as the dialect has it."""

    raws: tuple[Any, ...]


BUNDLES = MessageForm[Bundle](lambda made: made.raws, lambda raws, _: Bundle(tuple(raws)))


@st.composite
def histories(draw: st.DrawFn) -> list[Bundle]:
    """Draw a history, lawful or not, cut into bundles of one to four messages."""
    raws: list[Any] = []
    for number in range(draw(st.integers(1, 14))):
        raws.append({"role": "user", "content": f"{number} " + notes(draw(SIZES), seed=number)})
        for call in range(draw(st.integers(0, 3))):
            name = f"c{number}-{call}"
            function = {"name": "look", "arguments": "{}"}
            calls = [{"id": name, "type": "function", "function": function}]
            raws.append({"role": "assistant", "content": None, "tool_calls": calls})
            if draw(st.integers(0, 9)):  # now and then a result is missing, and is written
                text = notes(draw(SIZES), seed=100 + number + call)
                raws.append({"role": "tool", "tool_call_id": name, "content": text})
        raws.append({"role": "assistant", "content": notes(draw(SIZES), seed=900 + number)})
    made, at = [], 0
    while at < len(raws):
        size = draw(st.integers(1, 4))
        made.append(Bundle(tuple(raws[at : at + size])))
        at += size
    return made


SIZES = st.sampled_from([1, 5, 40, 300])


@given(histories(), st.sampled_from([700, 1_500, 4_000]))
def test_what_is_sent_is_what_the_guard_alone_sends(history: list[Bundle], window: int):
    raws = [raw for bundle in history for raw in bundle.raws]
    guard = Guard("m", window=window, store=MemoryStore(), dialect="openai_chat")
    try:
        alone = guard.prepare(raws)
    except ContextTooLargeError:
        return
    session = Adapter(BUNDLES, "m", window=window).open()
    fitted = session.fit(history)
    assert [raw for bundle in fitted.messages for raw in bundle.raws] == alone.messages
    sent = {id(raw) for raw in fitted.view.messages}
    whole = [bundle for bundle in history if all(id(raw) in sent for raw in bundle.raws)]
    kept = {id(bundle) for bundle in fitted.messages}
    if None not in fitted.view.origin:  # what is put between parts of a message splits it
        assert all(id(bundle) in kept for bundle in whole)


@given(histories())
def test_each_message_of_a_view_came_from_its_origin(history: list[Bundle]):
    raws = [raw for bundle in history for raw in bundle.raws]
    try:
        view = Guard("m", window=1_500, store=MemoryStore()).prepare(raws)
    except ContextTooLargeError:
        return
    own = {id(raw): place for place, raw in enumerate(raws)}
    for place, message in zip(view.origin, view.messages, strict=True):
        assert own.get(id(message), place) == place
        if place is not None:
            assert message["role"] == raws[place]["role"]
            assert message.get("tool_call_id") == raws[place].get("tool_call_id")
