"""What answers came to: the larger of reported and counted, an estimate where it was counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import WordCounter
from ullage.core.dialects.openai_chat import FRAMING as CHAT
from ullage.core.dialects.usage import Usage
from ullage.core.messages.transcript import Call, Message, Part
from ullage.core.tokens.counting import Meter, Scale
from ullage.core.tokens.outputs import ReportedAnswer, settle

METER = Meter(WordCounter(), CHAT, Scale(0.9, 1.0, 1.2), "estimate")


def answer(words: int, output: int, thought: int = 0, *, final: bool = False) -> ReportedAnswer:
    parts = (Part("reasoning", "w " * thought), Part("text", "w " * words))
    return ReportedAnswer(Usage(10, 0, 0, output), [Message("assistant", parts)], final)


def test_the_report_of_a_first_event_gives_way_to_what_was_counted() -> None:
    (found,) = settle([answer(400, 3, 100)], METER)
    assert found == Usage(10, 0, 0, 400, 100)


def test_a_larger_report_holds_as_the_very_object() -> None:
    given_ = answer(40, 900)
    assert settle([given_], METER)[0] is given_.usage


def test_a_final_report_gives_way_only_to_a_count_that_is_above_it_at_its_lower_edge() -> None:
    near, far = answer(100, 95, final=True), answer(100, 80, final=True)
    assert settle([near, far], METER) == [near.usage, Usage(10, 0, 0, 100)]
    assert settle([answer(100, 95)], METER) == [Usage(10, 0, 0, 100)]


def test_calls_count_and_the_frame_of_the_message_does_not() -> None:
    call = Message("assistant", (), (Call("c", "read", "w " * 50),))
    (found,) = settle([ReportedAnswer(Usage(5), [call], final=False)], METER)
    assert found is not None
    assert 50 < found.output < 70
    (empty,) = settle([ReportedAnswer(Usage(5), [Message("assistant")], final=False)], METER)
    assert empty == Usage(5)


def test_no_report_stays_none() -> None:
    assert settle([ReportedAnswer(None, [Message("assistant", (Part("text", "w"),))])], METER) == [
        None
    ]
    assert settle([], METER) == []


@given(st.lists(st.tuples(*(st.integers(0, 300) for _ in range(3)), st.booleans()), max_size=5))
def test_no_output_is_ever_lowered(calls: list[tuple[int, int, int, bool]]) -> None:
    answers = [answer(w, o, t, final=f) for w, o, t, f in calls]
    for before, after in zip(answers, settle(answers, METER), strict=True):
        assert before.usage is not None
        assert after is not None
        assert after.output + after.reasoning >= before.usage.output + before.usage.reasoning
        assert after.prompt_tokens == before.usage.prompt_tokens
