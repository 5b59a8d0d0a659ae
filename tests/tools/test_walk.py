"""The way of a history through `Guard.prepare`: few returns to a room that was left."""

from __future__ import annotations

import pytest

from tools.walk import WAYS, Stay, Walk, count_returns, draw, main, talk, walk_prepare
from ullage.core.compaction.laws import units
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.tokens.window import resolve

MOST_RETURNS = 5


def rooms(stays: list[Stay]) -> list[str]:
    return [stay.room for stay in stays]


@pytest.mark.parametrize("way", WAYS)
def test_a_history_returns_to_a_room_that_it_left_five_times_at_most(way: str) -> None:
    window, summarises = WAYS[way]
    stays = walk_prepare(window, summarises=summarises)
    assert count_returns(stays) <= MOST_RETURNS, draw(stays)


def test_a_request_that_fits_goes_straight_through() -> None:
    stays = walk_prepare(100_000, summarises=False)
    assert rooms(stays) == [
        "guard",
        "core.dialects",
        "core.guard",
        "core.dialects",
        "core.messages",
        "core.compaction",
        "core.tokens",
    ]


def test_the_ways_that_compact_do_compact() -> None:
    for window, summarises in list(WAYS.values())[1:]:
        stays = walk_prepare(window, summarises=summarises)
        named = {name for stay in stays for name in stay.functions}
        assert "make_checkpoint" in named
        assert ("write" in named) is summarises


def test_a_room_that_was_left_is_returned_to() -> None:
    history = talk(3)
    codec = OpenAIChat()

    def work() -> None:
        units(codec.read(history))
        units(codec.read(history))

    stays = Walk(history).follow(work)
    assert rooms(stays)[0] == "core.dialects"
    assert count_returns(stays) == 3  # dialects, the readings below them, compaction
    assert "core.compaction (return): units" in draw(stays)


def test_what_is_not_handed_the_history_is_no_visit() -> None:
    assert Walk(talk(3)).follow(lambda: resolve([])) == []


def test_the_tool_prints_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    shown = capsys.readouterr().out
    assert all(f"{way}: " in shown for way in WAYS)
