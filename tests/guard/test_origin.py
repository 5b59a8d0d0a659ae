"""A view says where its messages arrived, whatever was repaired, left out or put together."""

from __future__ import annotations

from typing import Any

from ullage import Guard

LONG = "the wind holds and the swell is low " * 40


def say(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def test_untouched_messages_arrived_where_they_stand():
    messages = [say("user", "one"), say("assistant", "two"), say("user", "three")]
    assert Guard("m", window=4_000).prepare(messages).origin == (0, 1, 2)


def test_after_a_compaction_each_message_that_is_left_is_the_one_at_its_origin():
    turns = [say(("user", "assistant")[n % 2], f"{n}: {LONG}") for n in range(41)]
    view = Guard("m", window=4_000).prepare(turns)
    assert None in view.origin
    places = [place for place in view.origin if place is not None]
    assert places == sorted(places)
    assert places[-1] == 40
    pairs = zip(view.origin, view.messages, strict=True)
    assert sum(message is turns[place] for place, message in pairs if place is not None) > 1


def test_positions_are_those_that_arrived_before_the_repair():
    orphan = {"role": "tool", "tool_call_id": "gone", "content": "x"}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    view = Guard("m", window=4_000).prepare([say("user", "a"), orphan, asked, say("user", "b")])
    assert [m["role"] for m in view.messages] == ["user", "assistant", "tool", "user"]
    assert view.origin == (0, 2, None, 3)


class RolesError(Exception):
    """What a chat template says of two messages of one role in a row."""

    status_code = 500

    def __init__(self) -> None:
        super().__init__("Conversation roles must alternate user/assistant/user/assistant/...")


def test_a_message_that_was_put_together_of_two_has_no_origin():
    seen: list[Any] = []

    def send(**request: Any) -> dict[str, Any]:
        seen.append(request["messages"])
        if len(seen) == 1:
            raise RolesError
        return {"usage": {"prompt_tokens": 9, "completion_tokens": 1}}

    guard = Guard("m", window=4_000)
    history = [say("user", "a"), say("user", "b"), say("assistant", "c"), say("user", "d")]
    guard.call(send, history)
    assert [m["role"] for m in seen[1]] == ["user", "assistant", "user"]
    assert guard.prepare(history).origin == (None, 2, 3)
