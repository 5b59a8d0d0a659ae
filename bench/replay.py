"""`make bench-replay`: a corpus of a published size under four policies, and the growth of time.

It writes the corpus once, replays samples and the whole corpus in processes, and prints a table.
The figures of docs/replay.md come from here. The policies are the presets.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import time
from pathlib import Path

from bench.traces import SESSIONS, list_sizes, write_corpus
from ullage.core.compaction.policy import Policy
from ullage.replay import ReplayOptions, list_places, recommend, replay_corpus

POLICIES = ("ladder", "advisory", "auto_summary", "off")
WINDOW = 200_000


def main() -> None:
    """Write the corpus, replay it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/traces"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--sessions", type=int, nargs="*", default=[SESSIONS // 8, SESSIONS // 4, SESSIONS]
    )
    given = parser.parse_args()
    options = ReplayOptions({name: Policy.from_name(name) for name in POLICIES}, window=WINDOW)
    print("| sessions | calls | MB | seconds | calls a second | CPU ms a call and policy |")
    print("|---:|---:|---:|---:|---:|---:|")
    for sessions in given.sessions:
        folder = given.folder / str(sessions)
        if not folder.exists():
            draft = given.folder / f"{sessions}.new"
            shutil.rmtree(draft, ignore_errors=True)
            write_corpus(draft, sessions)
            draft.rename(folder)
        places, calls = list_places([folder]), sum(list_sizes(sessions))
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        found = replay_corpus(places, options, jobs=given.jobs)
        spent, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        megabytes = sum(place.size for place in places) / 1e6
        each = 1_000 * cpu / calls / len(POLICIES)
        rate = calls / spent
        print(
            f"| {sessions:,} | {calls:,} | {megabytes:,.0f} | {spent:,.0f} | {rate:,.0f} "
            f"| {each:.2f} |",
            flush=True,
        )
    told = {label: totals.to_dict() for label, totals in found.totals.items()}
    print(json.dumps({"faults": len(found.faults), "policies": told}, indent=1))
    print(recommend(found))


if __name__ == "__main__":
    main()
