"""The section of the page: what is added is the difference of the same round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.proxy import shown
from bench.proxy.rounds import slope
from bench.proxy.workloads import QUICK, Bodies, Plan

FACTS = {"minutes": 1.0, "machine": "m", "versions": "v", "rig": "one core", "proxy": "another"}


def reading(p50: float, *, cpu: float = 0.0, **more: Any) -> dict[str, Any]:
    times = {"p50": p50, "p99": 2 * p50}
    counts = {"sent": 100, "done": 100, "events": 1_000, "failed": {}, "seconds": 10.0}
    return {**counts, **dict.fromkeys(("first", "end", "gap"), times), "cpu_s": cpu, **more}


def results(**more: Any) -> dict[str, Any]:
    rows = {
        "direct": [reading(0.001), reading(0.002), reading(0.009)],
        "ullage": [reading(0.0015, cpu=0.1), reading(0.0026, cpu=0.1), reading(0.01, cpu=0.1)],
        "bare relay": [reading(0.001, cpu=0.05)] * 3,
        "LiteLLM": [reading(0.011, cpu=2), reading(0.012, cpu=2), reading(0.019, cpu=2)],
    }
    held = {"ullage": [reading(1, before_mb=100.0, most_mb=120.0)]}
    readings = {**dict.fromkeys(("small", "calm", "stream", "crowd", "first", "again"), rows)}
    plan = {"rounds": 3, "chunks": 200, "crowd": 400, "idle": 100}
    return {"plan": plan, "facts": FACTS, "readings": {**readings, "idle": held}, **more}


def test_what_is_added_is_the_median_of_the_rounds_differences():
    rows = results()["readings"]["small"]
    assert shown.added(rows, "ullage", "end", "p50") == pytest.approx(0.0006)
    assert shown.added(rows, "direct", "end", "p50") is None
    assert shown.added(rows, "nginx", "end", "p50") is None


def test_cpu_is_divided_over_all_rounds():
    rows = results()["readings"]["small"]
    assert shown.cpu(rows["ullage"], "done") == pytest.approx(0.001)
    assert shown.cpu(rows["direct"], "done") is None


def test_the_section_has_every_workload_and_its_targets():
    text = shown.section(results(start_mb={"ullage": 140.0}))
    assert text.startswith(shown.HEAD + "\n")
    for line in (
        "| ullage | 2.60 | 5.20 | 0.60 | 1.20 | 1.00 | 0 |",
        "| 1 KB, added p50 | 1 ms | 0.60 ms | yes |",
        "| 1 KB, CPU a request | 0.5 ms | 1.0 ms | **no** |",
        "| 1 KB, CPU over the bare relay's | 2.2 times | 2.0 times | yes |",
        "| memory at the start | 150 MB | 140 MB | yes |",
        "| stream, CPU a chunk | 80 µs | 100 µs | **no** |",
        "| memory a stream | 64 KB | 200 KB | **no** |",
        "| LiteLLM over ullage: 1 KB, 20 a second, added p50 | 8 | 16.7 | yes |",
        "| LiteLLM over ullage: 1 KB, 20 a second, CPU | 8 | 20.0 | yes |",
    ):
        assert line in text.splitlines()


def test_the_page_holds_each_target_as_it_is_now():
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text("utf-8")
    assert shown.AGAINST in page
    rows = page.partition(shown.AGAINST)[2].strip().partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    told = {said: (limit, kept) for said, limit, _, kept, *_ in cells}
    wanted = {target.said: f"{target.limit:g} {target.unit}" for target in shown.TARGETS}
    assert {said: told[said][0] for said in wanted} == wanted
    peers = {limit for said, (limit, _) in told.items() if said.startswith(shown.PEER)}
    assert peers == {str(shown.DEARER)}
    for said, _, measured, kept, *_ in cells:
        value = float(measured.split()[0])
        limit = float(told[said][0].split()[0])
        held = value >= limit if said.startswith(shown.PEER) else value <= limit
        assert kept == ("yes" if held else "**no**"), said


def test_failures_are_shown():
    found = results()
    found["readings"]["small"]["LiteLLM"][1]["failed"] = {"lost": 3, "status 500": 1}
    assert "| 20.00 | 3 lost, 1 status 500 |" in shown.section(found)


def test_who_answered_nothing_has_no_times():
    found = results()
    dead = reading(0.0, failed={"unfinished": 100}, done=0, events=0, first={}, end={}, gap={})
    found["readings"]["small"] = {"direct": [reading(0.001)], "nginx": [dead]}
    assert "| nginx | - | - | - | - | - | 100 unfinished |" in shown.section(found)


def test_a_soak_is_told_with_its_slope():
    points = [(0.0, 100.0), (0.5, 101.0)]
    row = reading(1, points=points, slope=2.0, aborted=7)
    text = shown.section(results(soak=row))
    assert "A soak of 30 minutes" in text
    assert "| soak, slope of memory | 1 MB/h | 2.0 MB/h | **no** |" in text


@given(st.floats(-100, 100), st.floats(-100, 100), st.integers(2, 50))
def test_the_slope_of_a_straight_line_is_its_own(rise, level, count):
    points = [(float(x), level + rise * x) for x in range(count)]
    assert slope(points) == pytest.approx(rise, abs=1e-6)


def test_no_line_has_no_slope():
    assert slope([]) == slope([(1.0, 5.0)]) == slope([(1.0, 5.0), (1.0, 6.0)]) == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# B\n\n## A\n\na\n\n## Where ullage is behind\n\nw\n", ["# B", "A", "The", "Where"]),
        ("# B\n\n## The guard proxy\n\nold\n\n## Z\n\nz\n", ["# B", "Z", "The"]),
        ("# B\n", ["# B", "The"]),
    ],
)
def test_the_section_takes_its_place_on_the_page(before, after):
    text = shown.HEAD + "\n\nnew\n"
    page = shown.spliced(before, text)
    assert [part.split("\n")[0].split(" guard")[0].split(" ullage")[0] for part in
            page.split("\n## ")] == after  # fmt: skip
    assert page.count("new") == 1
    assert "old" not in page
    assert shown.spliced(page, text) == page


def test_a_page_written_anew_keeps_the_section_that_it_had():
    text = shown.HEAD + "\n\nold figures\n"
    page = "# B\n\n## Where ullage is behind\n\nw\n"
    assert shown.carried(shown.spliced("# A\n\n## Z\n\nz\n", text), page) == shown.spliced(
        page, text
    )
    assert shown.carried("# A\n", page) == page


def test_bodies_are_as_large_as_they_say(tmp_path):
    bodies = Bodies(tmp_path, QUICK)
    for workload in (bodies.small(), bodies.stream()):
        (file,) = workload.bodies
        assert 950 <= Path(file).stat().st_size <= 1_050


def test_a_session_seen_again_has_one_turn_more(tmp_path):
    bodies = Bodies(tmp_path, Plan(sessions=1))
    first, again = (
        json.loads(Path(bodies.long(3, again=more).bodies[0]).read_text("utf-8"))
        for more in (False, True)
    )
    assert again["messages"][:-2] == first["messages"]
    assert bodies.long(3, again=False).bodies == bodies.long(3, again=False).bodies


def test_a_crowd_is_as_large_as_it_says(tmp_path):
    plan = Plan()
    crowd = Bodies(tmp_path, plan).crowd()
    assert crowd.rate * plan.chunks * crowd.settings["interval_s"] == pytest.approx(plan.crowd)
    assert crowd.count == 800
