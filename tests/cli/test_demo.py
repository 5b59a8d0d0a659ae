"""The demo end to end: a real llama.cpp server, the tiny model, both sides of the duel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.faults import closed_port
from ullage.cli import scenario
from ullage.cli.duel import DuelClient, RefusedError
from ullage.cli.main import main
from ullage.transport import Transport


def test_the_guarded_side_finishes_where_the_other_dies(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--quick", "--json", "--model", str(tiny_model)]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    plain, kept = report["unguarded"], report["guarded"]
    assert report["window_tokens"] == 1536
    assert report["windows"] > 3
    assert (kept["completed"], kept["overflow_errors"]) == (kept["turns"], 0)
    assert kept["compactions"] > 2
    assert kept["tokens_saved"] > 2048
    assert plain["overflow_errors"] == plain["turns"] - plain["completed"] > 10
    assert "exceeds the available context size" in plain["first_error"]
    assert "compacted" in shown.err
    assert "ctx=" in shown.err
    lines = dict(re.findall(r"asked: +(.*) \(said.*\n +(?:sent|search): (.*)", shown.err))
    held = [fact for fact in scenario.FACTS if fact.value in lines[fact.asked]]
    assert [lines[f.asked] for f in scenario.FACTS if f not in held] == ["nothing of it"] * (
        7 - len(held)
    )
    counts = [*kept["facts_sent"].values(), *kept["facts_found"].values()]
    assert sum(int(count.split("/")[0]) for count in counts) == len(held) >= 4


def test_the_table_names_both_sides(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick", "--model", str(tiny_model)]) == 0
    shown = capsys.readouterr()
    table = shown.out
    assert "unguarded     guarded" in table
    pattern = r"asked: +(.*) \(said (\d+) turns ago\)\n +(sent|search): .*\n +answer: "
    asked = re.findall(pattern, shown.err)
    assert [each[:2] for each in asked] == [(fact.asked, "14") for fact in scenario.FACTS]
    assert "✗" in shown.err
    assert "▾" in shown.err
    assert re.search(r"turns completed +\d/22 +22/22\n", table)


def test_summaries_come_from_the_model_itself(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--quick", "--summaries", "--model", str(tiny_model)]) == 0
    told = capsys.readouterr().err
    assert "(kept by rule" in told  # in so small a window there is no room for prose
    assert "summarise_middle" not in told


def test_an_unknown_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "gpt-9"]) == 1
    assert "gpt-9" in capsys.readouterr().err


def test_a_server_that_is_gone_is_a_failed_turn_and_no_crash() -> None:
    with closed_port() as port, pytest.raises(RefusedError, match="ConnectError"):
        DuelClient(f"http://127.0.0.1:{port}/v1", Transport()).create(messages=[])


@pytest.mark.parametrize("turns", [22, 64])
def test_the_script_tells_each_fact_once_and_asks_for_it_last(turns: int) -> None:
    script = scenario.script(turns)
    told = json.dumps([t.messages for t in script[: turns - len(scenario.FACTS)]])
    assert len(script) == turns
    assert all(told.count(fact.value) == 1 for fact in scenario.FACTS)
    for fact in scenario.FACTS:
        assert fact.value in json.dumps(script[fact.turn - 1].messages)
    assert [t.asks for t in script[-len(scenario.FACTS) :]] == list(scenario.FACTS)
    assert scenario.script(turns) == script
