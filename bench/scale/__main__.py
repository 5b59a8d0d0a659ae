"""`make bench-scale`: measure what turns write, fit the model, simulate, and write docs/scale.md.

Results are kept in bench/recorded/scale.json: `--from` makes the page of them again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.scale import loads, page, turns
from bench.scale.counters import Counters
from tests.support.postgres import Server, obtain

KEPT: Final = Path(__file__).parents[1] / "recorded" / "scale.json"
THREADS: Final = (1, 2, 3, 4, 5, 6, 8)
LENGTHS: Final = (100, 500, 2_000, 5_000, 10_000)
SIZES: Final = (8_000, 32_000, 128_000, 512_000)


def main() -> None:
    """Parse the arguments, measure or read, show and write."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run, whose figures say little"
    )
    parser.add_argument("--from", dest="kept", type=Path, help="results of an earlier run")
    parser.add_argument("--write", type=Path, help="the page")
    given = parser.parse_args()
    if given.kept is not None:
        results = json.loads(given.kept.read_text(encoding="utf-8"))
    else:
        results = measure(quick=given.quick)
        if not given.quick:
            KEPT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = page.write(results)
    print(text)
    if given.write is not None:
        given.write.write_text(text, encoding="utf-8")


def measure(*, quick: bool) -> dict[str, Any]:
    """Return all figures."""
    seconds, scale = (0.3, 10) if quick else (2.0, 1)
    sessions = max(turns.SESSIONS // scale, 2)
    found: dict[str, Any] = {}
    begun = time.monotonic()

    def keep(name: str, value: Any) -> None:
        found[name] = value
        print(f"{time.monotonic() - begun:6.1f} s  {name}", file=sys.stderr, flush=True)

    with Server(obtain()) as server, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        keep("machine", read_machine(server, folder))
        keep("disk", loads.measure_disk(server.folder))
        keep("turns", [turns.measure_postgres(server, one, sessions) for one in turns.SHAPES])
        keep("turns_sqlite", [turns.measure_sqlite(o, folder, sessions) for o in turns.SHAPES])
        keep("proxy", [turns.measure_proxy(server, tokens, 10) for tokens in (200_000, 3_000)])
        keep("rivals", loads.measure_rivals(server, THREADS, seconds))
        keep("rivals_sqlite", loads.measure_sqlite_rivals(folder, (1, 4, 8), seconds))
        keep("hot", [loads.measure_hot_session(server, n, seconds) for n in (0, 1, 4)])
        keep(
            "scopes",
            [
                loads.measure_scopes(server, n, hot=hot, seconds=seconds)
                for n, hot in ((1, True), (4, True), (4, False), (8, True), (8, False))
            ],
        )
        keep("leases", loads.measure_leases(server, 200 // scale, 20))
        keep(
            "resumes", loads.measure_resumes(server.created(), LENGTHS[: None if not quick else 5])
        )
        keep("resumes_sqlite", loads.measure_resumes(f"sqlite://{folder}/r.db", LENGTHS))
        keep("removal", loads.measure_removal(server, 400 // scale, 250))
        keep("removal_sqlite", loads.measure_sqlite_removal(folder / "d.db", 100 // scale, 1_000))
        keep("partitions", loads.measure_partitions(server, 400 // scale, 250, seconds))
        keep("moved", loads.measure_moved(server.created(), folder, SIZES))
        keep("originals", loads.measure_originals(server.created(), SIZES))
    return found


def read_machine(server: Server, folder: Path) -> dict[str, Any]:
    """Return what the figures were measured on."""
    counters = Counters(server, server.created())
    try:
        version = counters.ask("SHOW server_version")
        buffers = counters.ask("SHOW shared_buffers")
    finally:
        counters.close()
    space = os.statvfs(folder)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count() or 1,
        "memory": pages,
        "disk": space.f_blocks * space.f_frsize,
        "postgres": version,
        "buffers": buffers,
    }


if __name__ == "__main__":
    main()
