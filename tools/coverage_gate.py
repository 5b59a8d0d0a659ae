"""Check the coverage budgets: every branch of the core, 95 % of the rest.

It reads the JSON of coverage.py, and knows nothing of the measurement.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

CORE: Final = "src/ullage/core/"
REST_PERCENT: Final = 95.0
NAMED: Final = 12


def shortfalls(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence for each budget that a coverage report misses."""
    if not report["meta"]["branch_coverage"]:
        yield "measured without branches: set branch = true"
        return
    files: Mapping[str, Any] = report["files"]
    core = {path: data for path, data in files.items() if path.startswith(CORE)}
    rest = {path: data for path, data in files.items() if path not in core}
    if not core:
        yield f"nothing of {CORE} was measured"
    for path, data in sorted(core.items()):
        gaps = [str(line) for line in data["missing_lines"]]
        gaps += [f"{start}->{end}" for start, end in data.get("missing_branches", [])]
        if gaps:
            more = f" and {len(gaps) - NAMED} more" if len(gaps) > NAMED else ""
            yield f"{path}: the core wants every branch; missing {', '.join(gaps[:NAMED])}{more}"
    if rest and percent(rest) < REST_PERCENT:
        yield f"outside the core {percent(rest):.2f} %, the budget is {REST_PERCENT:.0f} %:"
        for path, data in sorted(rest.items(), key=lambda item: percent({item[0]: item[1]})):
            if percent({path: data}) < REST_PERCENT:
                yield f"  {path}: {percent({path: data}):.1f} %"


def percent(files: Mapping[str, Any]) -> float:
    """Return the covered share of lines and branches of some files, in per cent."""
    summaries = [data["summary"] for data in files.values()]
    run = sum(s["covered_lines"] + s["covered_branches"] for s in summaries)
    there = sum(s["num_statements"] + s["num_branches"] for s in summaries)
    return 100.0 * run / there if there else 100.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a report; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.coverage_gate", description=__doc__)
    parser.add_argument("report", type=Path)
    report = json.loads(parser.parse_args(arguments).report.read_text(encoding="utf-8"))
    missed = list(shortfalls(report))
    for sentence in missed:
        print(sentence)
    if not missed:
        print(f"coverage {percent(report['files']):.1f} %, the core whole")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
