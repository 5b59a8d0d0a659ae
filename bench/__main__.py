"""`make bench`: compare ullage with its peers and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from bench import peers, report, venvs
from bench.measure import QUICK, Bench, Plan
from bench.proxy import shown as proxy_shown
from bench.sections import SECTIONS, present, run
from ullage.embedded import Launch, Server, fetch

PAGE = "docs/benchmarks.md"
EMBEDDED = "qwen2.5-coder-0.5b"
"""The embedded model that summarises: the smallest one whose answers have a fixed form."""

MODEL_WINDOW = 8_192
HIDDEN = (
    "names", "sizes", "summarizer", "summarizer_model", "model_sessions", "model_turns",
    "model_authors", "model_shares",
)  # fmt: skip


def machine() -> dict[str, str]:
    """Return the machine, system and Python version, on which the figures depend."""
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
    options = _options()
    folder = venvs.ROOT / "build" / ("bench-quick" if options.quick else "bench")
    saved = options.saved
    if saved is None:
        with _find_summarizer(options) as options.summarizer:
            saved = _measured(options, folder)
    results = json.loads(saved.read_text(encoding="utf-8"))
    text = report.page(results)
    print(text)
    page = options.page
    if page is None and not options.quick and present(results) == set(SECTIONS):
        page = venvs.ROOT / PAGE
    if page is None:
        print("no page written: this was a smoke run, or sections are missing")
        return
    page.parent.mkdir(parents=True, exist_ok=True)
    # Keeps the section on the proxy, which another command writes.
    text = proxy_shown.carried(page.read_text("utf-8") if page.exists() else "", text)
    page.write_text(text, encoding="utf-8")
    print(f"wrote {page.name}")


@contextmanager
def _find_summarizer(options: argparse.Namespace) -> Iterator[str]:
    """Yield the URL of the model server that summarises; start and stop it if "embedded"."""
    if options.summarizer != "embedded":
        yield options.summarizer
        return
    launch = Launch(window=MODEL_WINDOW, alias=EMBEDDED, batch=512)
    options.summarizer_model = EMBEDDED
    with Server(fetch(EMBEDDED), launch) as server:
        yield server.base_url


def _measured(options: argparse.Namespace, folder: Path) -> Path:
    """Measure the chosen sections and return the file of results.

    With `--only`, the chosen sections replace those of the earlier results.
    """
    plan, file = _plan(options), folder / "results.json"
    only = [name for name in SECTIONS if not options.only or name in options.only]
    again = options.only and file.exists()
    results = json.loads(file.read_text(encoding="utf-8")) if again else {}
    if not again:
        shutil.rmtree(folder, ignore_errors=True)
    started = time.monotonic()
    bench = Bench(plan, folder, results)
    run(bench, only)
    minutes = (time.monotonic() - started) / 60
    bench.results["machine"] = machine()
    if again:
        told = bench.results["plan"]
        told["again"] = sorted({*told["again"], *only})
    else:
        bench.results["plan"] = {**_facts(plan), "minutes": minutes, "again": []}
    file.write_text(json.dumps(bench.results, indent=1), encoding="utf-8")
    return file


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else Plan()
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    if options.summarizer:
        plan = replace(
            plan,
            summarizer=options.summarizer,
            summarizer_model=options.summarizer_model,
            model_sessions=options.summarizer_sessions,
        )
    if options.peers:
        plan = replace(plan, names=[name for name in peers.HOMES if name in options.peers])
    return plan


def _facts(plan: Plan) -> dict[str, object]:
    return {key: value for key, value in asdict(plan).items() if key not in HIDDEN}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; writes no page")
    parser.add_argument(
        "--only", type=_names(SECTIONS), help=f"measure only these, by comma: {', '.join(SECTIONS)}"
    )
    parser.add_argument(
        "--peers", type=_names(peers.HOMES), help=f"only these, of: {', '.join(peers.HOMES)}"
    )
    parser.add_argument("--rounds", type=int, help="readings per figure (5)")
    parser.add_argument(
        "--summarizer",
        metavar="URL",
        help="a server whose model summarises, for `survival` and `fidelity`; or `embedded`",
    )
    parser.add_argument("--summarizer-model", default="local", help="the model's name there")
    parser.add_argument(
        "--summarizer-sessions", type=int, default=1, help="small sessions it is asked about (1)"
    )
    parser.add_argument("--page", type=Path, help=f"where to write the page ({PAGE})")
    parser.add_argument("--from", dest="saved", type=Path, help="write the page from saved results")
    return parser.parse_args()


def _names(known: Collection[str]) -> Callable[[str], set[str]]:
    def parse(text: str) -> set[str]:
        names = {name.strip() for name in text.split(",")}
        if unknown := names - set(known):
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)} in {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    main()
