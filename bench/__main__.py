"""`make bench`: measure ullage beside its peers and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import time
from dataclasses import replace
from pathlib import Path

from bench import peers, report, venvs
from bench.measure import QUICK, Bench, Plan

PAGE = "docs/benchmarks.md"


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), model)
    return {
        "processor": f"{model}, {os.cpu_count()} logical",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }


def main() -> None:
    """Parse the arguments, measure, write the results and the page."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; writes no page")
    parser.add_argument("--peers", help=f"only these, by comma, of: {', '.join(peers.HOMES)}")
    parser.add_argument("--rounds", type=int, help="readings per figure (5)")
    parser.add_argument("--page", type=Path, help=f"where to write the page ({PAGE})")
    parser.add_argument("--from", dest="saved", type=Path, help="write the page from saved results")
    options = parser.parse_args()
    plan = QUICK if options.quick else Plan()
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    if options.peers:
        names = {name.strip() for name in options.peers.split(",")}
        plan = replace(plan, names=[name for name in peers.HOMES if name in names])
    folder = venvs.ROOT / "build" / ("bench-quick" if options.quick else "bench")
    saved = options.saved
    if saved is None:
        shutil.rmtree(folder, ignore_errors=True)
        started = time.monotonic()
        results = Bench(plan, folder).run()
        results["machine"] = machine()
        results["plan"] = {"quick": options.quick, "rounds": plan.rounds, "limit_s": plan.limit_s,
                           "window": plan.window, "output": plan.output, "turns": plan.turns,
                           "minutes": (time.monotonic() - started) / 60}  # fmt: skip
        saved = folder / "results.json"
        saved.write_text(json.dumps(results, indent=1), encoding="utf-8")
    text = report.page(json.loads(saved.read_text(encoding="utf-8")))
    print(text)
    page = options.page or (None if options.quick else venvs.ROOT / PAGE)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page.name}")


if __name__ == "__main__":
    main()
