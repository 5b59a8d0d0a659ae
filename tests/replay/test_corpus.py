"""Many sessions in processes: the same totals whatever happens to some of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.replay.recording import presets, save, small
from ullage.core.compaction.edits import Script
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.compaction.situation import Situation
from ullage.core.compaction.strategy import Strategy
from ullage.core.errors import ConfigurationError
from ullage.replay import (
    PolicyComparison,
    ReplayOptions,
    ReplayRecords,
    ReplayRow,
    list_places,
    read_records,
    replay_corpus,
)

WINDOW = 6_000


def end_process(situation: Situation) -> Script:
    """End the process: what running out of memory comes to."""
    if len(situation.transcript) > 60:
        os._exit(9)
    return Script()


DEADLY = Policy(name="deadly", rungs=(Rung(0.5, 0.3, (Strategy("deadly", end_process),)),))


def plain(found: PolicyComparison) -> dict[str, object]:
    """Return totals without the time they took."""
    return {label: replace(totals, own_ms=0) for label, totals in found.totals.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of six sessions and a broken file."""
    for number in range(6):
        save(tmp_path, f"{number}.json", 20 + 12 * number, number + 1)
    (tmp_path / "broken.json").write_text('{"messages": [')
    (tmp_path / "odd.json").write_text('{"messages": [{"role": "assistant"}, {"role": 7}]}')
    return tmp_path


def test_processes_and_one_process_come_to_the_same_and_a_broken_file_is_named(
    folder: Path,
) -> None:
    options = ReplayOptions(presets() | {"small": small()}, window=WINDOW)
    places, told = list_places([folder]), list[tuple[int, int | None]]()
    alone = replay_corpus(places, options, jobs=1)
    both = replay_corpus(places, options, jobs=2, report=lambda *done: told.append(done))
    assert plain(alone) == plain(both)
    assert alone.totals["ladder"].sessions == 6
    assert {Path(place).name for place in alone.faults} == {"broken.json", "odd.json"}
    total = sum(place.size for place in places)
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert sorted(told) == told


def test_what_was_done_is_not_done_again(folder: Path) -> None:
    options = ReplayOptions(presets(), window=WINDOW)
    places, rows = list_places([folder]), list[ReplayRow]()
    whole = replay_corpus(places, options, jobs=1, take=rows.extend)
    assert len(rows) == len(places) * len(presets())
    again = list[ReplayRow]()
    assert plain(replay_corpus(places, options, jobs=2, done=rows, take=again.extend)) == plain(
        whole
    )
    assert again == []
    half = [row for row in rows if row.policy != "off" and not row.place.endswith("3.json")]
    went_on = replay_corpus(places, options, jobs=1, done=half, take=again.extend)
    assert plain(went_on) == plain(whole)
    assert {row.key for row in again}.isdisjoint(row.key for row in half)


@pytest.mark.slow
def test_a_session_that_kills_its_process_is_a_fault_and_takes_no_other_with_it(
    folder: Path,
) -> None:
    options = ReplayOptions({"deadly": DEADLY}, window=WINDOW)
    found = replay_corpus(list_places([folder]), options, jobs=2)
    killed = {Path(place).name for place, fault in found.faults.items() if "killed" in fault}
    assert killed == {"4.json", "5.json"}
    assert found.totals["deadly"].sessions == 4


def test_an_unknown_window_is_a_fault_that_says_what_to_give(tmp_path: Path) -> None:
    path = save(tmp_path, "a.json", 20)
    options = ReplayOptions(presets(), model="a-model-that-nobody-serves")
    found = replay_corpus(list_places([path]), options)
    assert "give one in tokens, such as --window 200000" in found.faults[str(path)]
    assert found.totals["ladder"].turns == 0
    known = replay_corpus(list_places([path]), ReplayOptions(presets()))
    assert known.totals["ladder"].dollars is not None


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no policy is named"):
        ReplayOptions({})
    with pytest.raises(ConfigurationError, match="a window must be a positive number"):
        ReplayOptions(presets(), window=0)
    with pytest.raises(ConfigurationError, match="a cache lives 0 seconds or more, not -1"):
        ReplayOptions(presets(), cache_life_s=-1)
    with pytest.raises(ConfigurationError, match="needs one process or more, not 0"):
        replay_corpus([], ReplayOptions(presets()), jobs=0)


def test_what_has_grown_is_done_again_and_what_was_not_asked_for_is_left_out(
    tmp_path: Path,
) -> None:
    options = ReplayOptions({"off": Policy.off()}, window=WINDOW)
    one, two = save(tmp_path, "one.json", 20), save(tmp_path, "two.json", 30, 2)
    out = tmp_path / "rows.jsonl"

    def run(*given: Path) -> PolicyComparison:
        with ReplayRecords(out, options.name_run()) as records:
            rows = list(records.rows.values())
            return replay_corpus(list_places(given), options, jobs=1, done=rows, take=records.add)

    first = run(one).totals["off"]
    assert run(two).totals["off"].sessions == 1
    assert len(out.read_bytes().splitlines()) == 3
    save(tmp_path, "one.json", 60)
    grown = run(one, two).totals["off"]
    assert grown.sessions == 2
    assert run(one).totals["off"].turns > first.turns
    assert len(out.read_bytes().splitlines()) == 4  # the head, both, and what has grown
    assert len(read_records(out)[1]) == 2


def test_calls_of_a_named_model_are_all_of_that_one_model(tmp_path: Path) -> None:
    path, history = tmp_path / "log.jsonl", list[dict[str, str]]()
    with path.open("w") as file:
        for number in range(4):
            history.append({"role": "user", "content": f"question {number} " + "word " * 2_000})
            model = ("claude-sonnet-4-5", "claude-haiku-4-5")[number % 2]
            request = {"model": model, "system": "s", "max_tokens": 9, "messages": history}
            file.write(json.dumps({"request": request, "response": {}}) + "\n")
            history.append({"role": "assistant", "content": "fine"})
    cached = dict[str | None, int]()
    for named in (None, "claude-sonnet-4-5"):
        options = ReplayOptions({"off": Policy.off()}, model=named)
        found = replay_corpus(list_places([path]), options, jobs=1).totals["off"]
        cached[named] = found.cached_tokens
    assert cached[None] == 0
    assert cached["claude-sonnet-4-5"] > 10_000
