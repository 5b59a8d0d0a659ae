"""Servers of which nothing is known beforehand: few lessons, and no turn lost after them.

Each test is one server and one client that knows nothing of windows. The numbers are those of the
issue: 40 turns with tools, 80 small ones, a window of 4,096 tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.proxy.serving import Proxy, proxied
from tests.proxy.strangers import (
    WINDOW,
    WORDS,
    LookAlike,
    Stranger,
    Talk,
    Vocabulary,
    Wording,
    chatting,
    remark,
    result,
    working,
)
from tests.support.fixtures import StartServer
from ullage.config.serving import ModelRule
from ullage.embedded import Launch

TOOL_TURNS, SMALL_TURNS = 40, 80

Feed = Callable[[Talk, int], None]

DENSE, MIDDLING, SPARSE = Vocabulary(3, opening=150), Vocabulary(), Vocabulary(6, tools=0.0)
"""Vocabularies with 1.8, 1.1 and 0.9 times the tokens of what counts here; the last one's template
does not know tools."""


def held(proxy: Proxy, talk: Talk, turns: int, feed: Feed) -> None:
    """Hold a conversation of so many turns."""
    if feed is remark:
        feed(talk, 0)
    for turn in range(turns):
        talk.asked(proxy)
        feed(talk, turn + 1)


def cross() -> Iterator[Any]:
    """Yield all strangers; in the short suite any two properties meet, in the long one all three.

    Those are: how it words a refusal, how it counts, and whether it reports usage.
    """
    named = {"dense": DENSE, "middling": MIDDLING, "sparse": SPARSE}
    for row, wording in enumerate(WORDS):
        for column, (name, vocabulary) in enumerate(named.items()):
            for reports in (True, False):
                marks = [] if reports is ((row + column) % 2 == 0) else [pytest.mark.long]
                told = "reports" if reports else "mute"
                case = (wording, vocabulary, reports)
                yield pytest.param(*case, id=f"{told}-{name}-{wording}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("wording", "vocabulary", "reports"), list(cross()))
def test_a_stranger_that_refuses_costs_one_call_and_no_turn(
    wording: Wording, vocabulary: Vocabulary, reports: bool
) -> None:
    for talk, turns, feed in (
        (working(), TOOL_TURNS, result),
        (chatting(), SMALL_TURNS, remark),
    ):
        with (
            Stranger(wording=wording, vocabulary=vocabulary, reports=reports) as server,
            proxied(server.root_url, rules=(ModelRule(),)) as proxy,
        ):
            held(proxy, talk, turns, feed)
        assert talk.failed == 0
        assert sum(prompt.refused for prompt in server.prompts) == 1
        assert len(server.prompts) == turns + 1
        assert max(prompt.tokens for prompt in server.prompts if not prompt.refused) < WINDOW


@pytest.mark.parametrize("shown", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("wording", ["both", "none"])
@pytest.mark.parametrize("reports", [True, False], ids=["reports", "mute"])
def test_tools_of_which_nobody_knows_how_they_are_shown_cost_no_turn(
    shown: float, wording: Wording, reports: bool
) -> None:
    """Twelve tools are from no token to half of the window: the band is wide, the room small."""
    server = Stranger(
        wording=wording, vocabulary=Vocabulary(4, tools=shown), reports=reports, strict=True
    )
    talk = working(3, max_tokens=512)
    with server, proxied(server.root_url, rules=(ModelRule(),)) as proxy:
        held(proxy, talk, TOOL_TURNS, result)
    assert talk.failed == 0
    assert len(server.prompts) <= TOOL_TURNS + 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat"])
@pytest.mark.parametrize(
    "vocabulary", [DENSE, MIDDLING, SPARSE], ids=["dense", "middling", "sparse"]
)
def test_a_server_that_cuts_in_silence_and_tells_what_it_loaded_never_cuts(
    path: str, vocabulary: Vocabulary
) -> None:
    for talk, turns, feed in (
        (working(path=path), TOOL_TURNS, result),
        (chatting(path=path), SMALL_TURNS, remark),
    ):
        with (
            LookAlike(vocabulary=vocabulary) as server,
            proxied(server.root_url, rules=(ModelRule(),)) as proxy,
        ):
            held(proxy, talk, turns, feed)
        assert talk.failed == 0
        assert not any(prompt.cut for prompt in server.prompts)
        assert len(server.prompts) == turns


def test_a_server_that_cuts_in_silence_and_tells_nothing_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where not even the loaded window is told, one sign is no proof: it is reported."""
    talk = chatting()
    with (
        LookAlike(tells=False) as server,
        proxied(server.root_url, rules=(ModelRule(),)) as proxy,
    ):
        held(proxy, talk, SMALL_TURNS, remark)
    assert talk.failed == 0
    assert any(prompt.cut for prompt in server.prompts)
    assert "cut a prompt in silence" in caplog.text


@pytest.mark.slow
def test_four_slots_over_one_pool_are_held_to_their_share(llama_server: StartServer) -> None:
    server = llama_server(Launch(window=4 * WINDOW, slots=4, unified_pool=True))
    talks = [working(max_tokens=64) for _ in range(4)]
    for number, talk in enumerate(talks):
        talk.messages[0]["content"] += f" You are clerk {number}."
    with proxied(server.root_url, rules=(ModelRule(),)) as proxy:
        threads = [
            threading.Thread(target=held, args=(proxy, talk, TOOL_TURNS, result)) for talk in talks
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert not any(thread.is_alive() for thread in threads)
    statuses = [talk.statuses for talk in talks]
    assert all(len(each) == TOOL_TURNS for each in statuses)
    failed = [turn for each in statuses for turn, status in enumerate(each) if status != 200]
    # Those who fill the pool together fail together; the retry of one may still meet another's.
    assert len(failed) <= 3
    assert max(failed, default=0) - min(failed, default=0) <= 3
