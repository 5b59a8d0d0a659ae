"""Units, checks and repairs on histories small enough to read."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core import laws
from ullage.core.transcript import Rules, Transcript
from ullage.core.wire.openai_chat import OpenAIChat

CODEC = OpenAIChat()


def user(text: str = "go") -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(*ids: str) -> dict[str, Any]:
    asked = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": asked}


def result(name: str, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": text}


def read(*messages: Any) -> Transcript:
    return CODEC.read(list(messages))


def mend(*messages: Any) -> laws.Repaired:
    return laws.repair(read(*messages), CODEC)


def faults(repaired: laws.Repaired) -> list[str]:
    return [r.fault for r in repaired.repairs]


def test_a_response_and_all_its_results_are_one_unit() -> None:
    transcript = read(user(), calls("a", "b"), result("b"), result("a"), user(), calls("c"))
    assert [(u.start, u.stop) for u in laws.units(transcript)] == [(0, 1), (1, 4), (4, 5), (5, 6)]


@pytest.mark.parametrize(
    ("history", "where", "what"),
    [
        ([user(), result("x")], 1, "which no call asked for"),
        ([user(), calls("a"), user()], 1, "has no result"),
        ([user(), calls("a")], 1, "has no result"),
        ([user(), calls("a", "a"), result("a"), result("a")], 1, "is used twice"),
        ([user(), calls("a"), result("a"), result("a")], 3, "which no call asked for"),
    ],
)
def test_a_broken_pair_is_named_with_its_place(history: list[Any], where: int, what: str) -> None:
    found = laws.protocol(CODEC.read(history))
    assert found[0].message == where
    assert what in found[0].detail


def test_a_dialect_says_which_roles_may_open() -> None:
    transcript = read({"role": "system", "content": "s"}, {"role": "assistant", "content": "hi"})
    strict = Transcript(transcript.raws, transcript.messages, Rules("x", frozenset({"user"})))
    assert laws.protocol(transcript) == []
    assert "opens with 'assistant'" in laws.protocol(strict)[0].detail


def test_a_dialect_may_demand_that_roles_alternate() -> None:
    transcript = read(user("a"), user("b"))
    strict = Transcript(transcript.raws, transcript.messages, Rules("x", alternation=True))
    assert "two messages of one role" in laws.protocol(strict)[0].detail


def test_an_orphan_result_is_left_out() -> None:
    mended = mend(user(), result("x"), user("b"))
    assert [m["content"] for m in mended.messages] == ["go", "b"]
    assert faults(mended) == ["orphan_result"]


def test_a_missing_result_is_written_as_an_error() -> None:
    mended = mend(user(), calls("a", "b"), result("b"), user("next"))
    assert mended.messages[2] == {
        "role": "tool",
        "tool_call_id": "a",
        "content": laws.ORPHAN_TEXT,
    }
    assert mended.messages[3]["tool_call_id"] == "b"
    assert faults(mended) == ["missing_result"]


def test_of_two_results_for_one_call_the_first_stays() -> None:
    mended = mend(user(), calls("a"), result("a", "first"), result("a", "second"))
    assert [m["content"] for m in mended.messages[2:]] == ["first"]
    assert faults(mended) == ["duplicate_result"]


def test_a_result_behind_its_turn_is_moved_to_its_call() -> None:
    mended = mend(user(), calls("a"), user("b"), result("a"))
    assert [m["role"] for m in mended.messages] == ["user", "assistant", "tool", "user"]
    assert faults(mended) == ["misplaced_result"]


def test_an_id_used_twice_in_one_response_is_renamed_with_its_result() -> None:
    mended = mend(user(), calls("a", "a"), result("a", "one"), result("a", "two"))
    asked = [c["id"] for c in mended.messages[1]["tool_calls"]]
    assert asked == ["a", "a~2"]
    assert [(m["tool_call_id"], m["content"]) for m in mended.messages[2:]] == [
        ("a", "one"),
        ("a~2", "two"),
    ]
    assert faults(mended) == ["duplicate_call"]


def test_an_id_used_again_by_a_later_response_is_lawful() -> None:
    history = [user(), calls("a"), result("a"), user(), calls("a"), result("a")]
    assert laws.protocol(CODEC.read(history)) == []


def test_repair_changes_no_message_of_the_caller() -> None:
    history = [user(), calls("a", "a"), result("a"), result("x"), user()]
    before = [dict(m) for m in history]
    laws.repair(CODEC.read(history), CODEC)
    assert history == before


def test_repair_is_repaired_once() -> None:
    mended = mend(user(), calls("a", "b"), result("x"), user(), result("b"))
    again = laws.repair(CODEC.read(mended.messages), CODEC)
    assert again.repairs == ()
    assert again.messages == mended.messages


def test_operator_text_is_pinned_wherever_it_stands() -> None:
    transcript = read(user(), {"role": "developer", "content": "d"}, user())
    assert laws.pinned(transcript.messages) == {1}
