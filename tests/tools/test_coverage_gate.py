"""The coverage gate wants every branch of the core, 95 % of the rest, and says what is missing."""

from __future__ import annotations

import json

from tools import coverage_gate as gate

CORE = "src/ullage/core/tokens/gauge.py"
ROOM = "src/ullage/runtime.py"


def measured(run: int, there: int, *, branch_gaps=(), line_gaps=()) -> dict:
    summary = {
        "covered_lines": run,
        "num_statements": there,
        "covered_branches": 0,
        "num_branches": 0,
    }
    gaps = {"missing_lines": list(line_gaps), "missing_branches": list(branch_gaps)}
    return {"summary": summary, **gaps}


def shortfalls(files, *, branches=True) -> list[str]:
    return list(gate.shortfalls({"meta": {"branch_coverage": branches}, "files": files}))


def test_a_whole_core_and_enough_of_the_rest_pass():
    assert shortfalls({CORE: measured(10, 10), ROOM: measured(95, 100)}) == []


def test_one_missing_branch_of_the_core_fails():
    (text,) = shortfalls({CORE: measured(10, 10, branch_gaps=[[3, 7]])})
    assert CORE in text
    assert "3->7" in text


def test_one_missing_line_of_the_core_fails():
    (text,) = shortfalls({CORE: measured(9, 10, line_gaps=[4])})
    assert text.endswith("missing 4")


def test_many_gaps_are_counted_not_listed():
    (text,) = shortfalls({CORE: measured(0, 40, line_gaps=range(40))})
    assert text.endswith("10, 11 and 28 more")


def test_the_rest_is_judged_together_and_the_culprits_named():
    files = {
        CORE: measured(1, 1),
        ROOM: measured(94, 100),
        "src/ullage/api/functions.py": measured(1, 1),
    }
    head, culprit = shortfalls(files)
    assert "94.06 %" in head
    assert ROOM in culprit


def test_an_unmeasured_core_fails():
    (text,) = shortfalls({ROOM: measured(1, 1)})
    assert "was measured" in text


def test_a_report_without_branches_fails():
    (text,) = shortfalls({CORE: measured(1, 1)}, branches=False)
    assert "without branches" in text


def test_the_command_exits_by_the_verdict(tmp_path, capsys):
    report = tmp_path / "coverage.json"
    for run, code in ((10, 0), (9, 1)):
        files = {CORE: measured(run, 10, line_gaps=[1] * (10 - run))}
        report.write_text(json.dumps({"meta": {"branch_coverage": True}, "files": files}))
        assert gate.main([str(report)]) == code
    assert "the core whole" in capsys.readouterr().out
