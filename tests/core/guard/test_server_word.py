"""What a server's own word does to a plan: what it leaves out, what it adds, when it is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.core.guard.driving import World, setup, talk, window
from tests.support.counting import WordCounter
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.guard import machine as guard
from ullage.core.guard.events import CompactionFailed, WindowCramped
from ullage.core.guard.request import Need, NeedSave, NeedServerCount, Prepared, Request, Setup
from ullage.core.messages.size import Size
from ullage.core.tokens.calibration import ReportedSize, learn
from ullage.core.tokens.counting import Anchor, Meter, Scale, measure
from ullage.core.tokens.sections import count_sections

GUESS = Scale(0.75, 1.1, 1.6)
TOOLS = [{"name": f"tool{n}", "description": "it reads a file " * 40} for n in range(30)]
"""Some 5,000 words."""


def said(messages: list[Any]) -> int:
    """Count as a server whose template has no place for tools."""
    return sum(WordCounter().count(str(m["content"])) + 4 for m in messages)


def prepare(world: World, messages: Any, given: Setup | None = None, **options: Any) -> Prepared:
    made = given or setup(scale=GUESS)
    return world.drive(guard.prepare(made, Request(messages, tools=TOOLS, **options)))


def asked(world: World) -> int:
    return sum(isinstance(need, NeedServerCount) for need in world.needs)


def failures(made: Prepared) -> list[str]:
    return [event.reason for event in made.events if isinstance(event, CompactionFailed)]


def test_a_plan_cuts_no_more_than_it_must_where_the_server_leaves_tools_out() -> None:
    world = World(window(1500), server=said)
    made = prepare(world, talk(24), max_tokens=60)
    assert made.outcome is not None
    assert made.outcome.reached
    assert made.outcome.after.tokens < made.outcome.before.tokens <= 1500
    assert 0.35 * 1500 < made.count.tokens <= 0.6 * 1500
    assert made.max_tokens == 60


@pytest.mark.parametrize("second", [None, 1300, 5])
def test_a_second_count_that_tells_nothing_leaves_the_first(second: int | None) -> None:
    counts: list[int | None] = [1300, second]

    def server(messages: list[Any]) -> int | None:
        return counts.pop(0) if counts else said(messages)

    made = prepare(World(window(1500), server=server), talk(24), max_tokens=60)
    assert made.outcome is not None
    assert made.count.basis == "server"
    assert made.count.tokens < 1300


def test_the_last_report_corrects_a_plan_where_no_server_counts() -> None:
    world, history = World(window(1500)), talk(20)
    given = setup(scale=GUESS, refuses=False)
    watching = replace(given, policy=given.policy.off())
    first = prepare(world, history, watching)
    world.observe(given, first, {"prompt_tokens": said(history), "completion_tokens": 9})
    longer = [*history, {"role": "user", "content": "and " * (700 - said(history) // 2)}]
    made = prepare(world, longer, given, max_tokens=60)
    assert made.outcome is not None
    assert made.outcome.after.tokens < made.outcome.before.tokens
    assert made.count.tokens < 1500
    assert made.max_tokens == 60


def test_a_report_that_agrees_with_the_estimate_changes_no_plan() -> None:
    given, request = setup(scale=GUESS), Request(talk(20))
    first = World(window(100_000)).drive(guard.prepare(given, request))
    world = World(window(round(first.count.tokens / 0.85)))
    tokens = {"prompt_tokens": first.count.tokens, "completion_tokens": 9}
    world.observe(given, first, tokens)
    made = world.drive(guard.prepare(given, request))
    assert made.measured.scale == GUESS
    assert made.outcome is not None


def test_what_is_not_smaller_by_the_servers_count_is_thrown_away() -> None:
    world = World(window(1850), server=lambda _: 1800)
    made = prepare(world, talk(24), max_tokens=60)
    assert (made.outcome, made.checkpoint) == (None, None)
    assert made.messages == talk(24)
    assert failures(made)[0].startswith("would_inflate")
    assert (made.count.tokens, made.count.basis) == (1800, "server")
    assert world.kept == {}


def test_a_compaction_that_would_be_due_again_waits_until_there_is_no_room() -> None:
    given = setup()
    history = [{"role": "system", "content": "w " * 700}, *talk(0)[1:]]
    made_at, waited, cramped = [], 0, 0
    world = World(window(1000))
    for turn in range(60):
        history.append({"role": "user", "content": f"turn {turn} " + "w " * 8})
        made = world.drive(guard.prepare(given, Request(history, max_tokens=50)))
        assert made.max_tokens == 50
        if made.outcome is not None:
            made_at.append(turn)
        waited += any(reason.startswith("would_not_last") for reason in failures(made))
        cramped += sum(isinstance(event, WindowCramped) for event in made.events)
        assert (made.cramped is not None) == bool(made.outcome or failures(made))
        usage = {"prompt_tokens": made.count.tokens, "completion_tokens": 9}
        world.observe(given, made, usage)
        history.append({"role": "assistant", "content": "yes"})
    assert len(made_at) >= 2
    assert min(b - a for a, b in pairwise(made_at)) >= 4
    assert waited > 0
    assert cramped == 1


def test_a_compaction_that_frees_next_to_nothing_is_not_made() -> None:
    history = [{"role": "system", "content": "w " * 900}, *talk(1)[1:]]
    made = World(window(1000)).drive(guard.prepare(setup(), Request(history, max_tokens=60)))
    assert made.outcome is None
    assert made.messages == history
    assert failures(made)


def test_the_server_is_asked_again_where_another_plan_was_stored_meanwhile() -> None:
    history = talk(24)
    winner = prepare(World(window(900), server=said), history, max_tokens=60).checkpoint
    assert winner is not None

    class Race(World):
        def answer(self, need: Need) -> Any:
            return winner if isinstance(need, NeedSave) else super().answer(need)

    made = prepare(Race(window(1500), server=said), history, max_tokens=1300)
    assert made.checkpoint is winner
    assert made.count.basis == "server"
    assert made.max_tokens == 1500 - made.count.tokens


def test_of_messages_that_nobody_answered_only_the_newest_must_stay() -> None:
    tries = [{"role": "user", "content": f"try {n} " + "w " * 700} for n in range(3)]
    made = World(window(1000)).drive(guard.prepare(setup(), Request(tries, max_tokens=60)))
    assert made.messages[-1] is tries[-1]
    assert made.count.tokens < 1000
    pinned = Request(tries, max_tokens=60, pins=frozenset({0}))
    kept = World(window(1000, source="table")).drive(guard.prepare(setup(), pinned))
    assert kept.messages[0] is tries[0]
    answered = [tries[0], {"role": "assistant", "content": "yes"}, tries[2]]
    stays = World(window(1000, source="table")).drive(guard.prepare(setup(), Request(answered)))
    assert "try 0" in json.dumps(stays.messages[0])


# --- sizes ----------------------------------------------------------------------------------------


def test_what_a_server_adds_or_leaves_out_stands_outside_the_messages() -> None:
    meter = Meter(WordCounter(), scale=GUESS, basis="estimate")
    found = measure(OpenAIChat().read(talk(10)), meter, tools=TOOLS)
    content = found.total.best
    for tokens in (content * 2, 60 * found.raw().best):
        made = found.correct(Anchor(tokens, found.raw()), 0.1)
        outside = made.outside().best
        assert made.count().tokens == pytest.approx(tokens, abs=2)
        assert outside == pytest.approx(tokens - made.scale.best * content, abs=2)
        assert made.fixed == found.fixed
        shares = count_sections(made, meter, {}, TOOLS, 0)
        assert (shares["tools"], shares["system_prompt"] >= outside) == (0, True)
    even = found.correct(Anchor(found.raw().best, found.raw()), 0.1)
    assert even.rest is None
    assert even.scale.best == 1.0


def test_a_server_that_leaves_tools_out_is_learned_from_the_second_report_on() -> None:
    held = learn(None, ReportedSize(1100, 1000, 9000))
    assert held is not None
    assert held.seen == 0
    held = learn(held, ReportedSize(2200, 2000, 9000, (1100, 1000)))
    assert held is not None
    assert held.predict(3000, 9000) == pytest.approx(3300, rel=0.02)
    assert learn(None, ReportedSize(100, 1000, 10)) is None


def test_an_empty_rest_is_no_negative_one() -> None:
    meter = Meter(WordCounter(), scale=GUESS, basis="estimate")
    found = measure(OpenAIChat().read(talk(10)), meter)
    made = found.split_by_ratio(Anchor(10, found.raw()), 1.0, 0.1)
    assert made.rest == Size(0, 0, 0)
