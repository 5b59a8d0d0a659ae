"""The page of driven clients: what a turn came to, from the proxy's lines and the client's end."""

from __future__ import annotations

from bench.clients.__main__ import page, row
from bench.clients.driving import Turn
from bench.clients.talkers import TALKERS

SERVED = {"status": 200, "used": 3_000, "window": 4_096}


def test_a_row_tells_the_largest_request_and_every_status() -> None:
    lines = ({**SERVED, "used": 500}, {**SERVED, "before": 3_900, "after": 3_000})
    turn = Turn(4, 12.4, "0", "oak", lines)
    assert row(turn) == "| 4 | 200 200 | 3,000 of 4,096 | 3,900 to 3,000 | 12 | answered |"


def test_a_turn_without_an_answer_is_shown_as_such() -> None:
    cramped = {"fixed": 4_230, "needed": 7_168}
    refused = Turn(1, 1.0, "1", "too | long", ({**SERVED, "status": 400, "cramped": cramped},))
    assert not refused.answered
    assert "exit code 1: too / long; the proxy says: 4,230 must stay" in row(refused)
    assert "a window of 7,168 would do" in row(refused)
    late = Turn(2, 90.0, "after 90 s", "", ({"status": 499},))
    assert row(late) == "| 2 | 499 | - | - | 90 | given up after 90 s |"
    assert "exit 0" in row(Turn(3, 1.0, "0", ""))


def test_the_page_has_only_what_was_driven() -> None:
    assert "##" not in page({}, TALKERS)
