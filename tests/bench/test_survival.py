"""A session is cut where a user speaks, and facts are found in what would be sent."""

from __future__ import annotations

import json
from typing import Any

from bench import survival
from bench.compacting import marked
from bench.peers.ours import ByRule, Pinning, TrimAlone, TrimAndBlock, Ullage
from bench.transcript import Shape, write
from tests.fidelity import corpus

MADE = corpus(3, turns=12, each=1)
JOB: dict[str, Any] = {
    "parts": survival.parts(MADE),
    "budget": 2_000,
    "pinned": survival.pinned(MADE.planted),
}


def sent(messages: list[Any]) -> str:
    """Return messages as a worker saves them."""
    return json.dumps(messages)


def test_parts_begin_with_requests_and_cover_the_session() -> None:
    assert len(JOB["parts"]) == survival.PARTS
    assert JOB["parts"][-1] == len(MADE.messages)
    assert all(MADE.messages[start]["role"] == "user" for start in JOB["parts"][:-1])


def test_all_but_old_values_hold_in_the_session_itself() -> None:
    found = survival.holding("seen", MADE.planted, sent(list(MADE.messages)))
    assert found["seen/rule"] == found["seen/rule/of"] == 1
    assert found["seen/superseded"] == 0
    assert found["seen/current"] == 1


def test_nothing_but_the_absence_of_old_values_holds_in_an_empty_session() -> None:
    found = survival.holding("seen", MADE.planted, sent([]))
    held = {name for name, n in found.items() if n and not name.endswith("/of")}
    assert held == {"seen/superseded"}


def test_a_chain_ends_with_the_newest_message_in_every_way_of_using_ullage() -> None:
    for peer in (Ullage(), TrimAlone(), TrimAndBlock(), ByRule(), Pinning()):
        left = peer.chained(list(MADE.messages), JOB)
        assert left[-1] == MADE.messages[-1]
        assert len(left) < len(MADE.messages)


def test_pinned_messages_are_all_left_and_old_values_are_not_pinned() -> None:
    left = Pinning().chained(list(MADE.messages), JOB)
    assert all(MADE.messages[i] in left for i in JOB["pinned"])
    old = [fact.position for fact in MADE.planted if fact.must == "absent"]
    assert set(old).isdisjoint(JOB["pinned"])


def test_a_block_is_put_in_only_where_it_is_wanted() -> None:
    alone, block = (p.chained(list(MADE.messages), JOB) for p in (TrimAlone(), TrimAndBlock()))
    assert "[ullage: summary of" not in sent(alone)
    assert sent(block).count("[ullage: summary of") == 1


def test_every_text_but_the_system_s_is_marked_at_both_ends() -> None:
    messages = marked(write(Shape(20)))
    texts = [m["content"] for m in messages[1:] if m["content"]]
    assert all(text.startswith("[[H") and text.endswith("]]") for text in texts)
    assert "[[H" not in messages[0]["content"]


def test_what_is_left_out_stands_in_some_request_of_a_summariser() -> None:
    messages = marked(write(Shape(60)))
    kept, asked = Ullage().covered(messages, 3_000, 4_096)
    text = sent(kept) + "".join(prompt for prompt, _ in asked)
    assert len(kept) < len(messages)
    assert all(f"[[H{i:05}]]" in text for i, m in enumerate(messages) if i and m["content"])
