"""`python -m tests.integrations`: run the frameworks, each in its venv, and write their page.

The page is docs/integrations.md. `NAME ...` runs these alone, `NAME=PYTHON` in another environment,
`--ci` those that CI runs; then the page stays. `--time` measures what the guard adds to a turn.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.venvs import ready
from tests.integrations.conformance import (
    FrameworkError,
    Outcome,
    find_version,
    list_faults,
    run_example,
    run_framework,
)
from tests.integrations.frameworks import IN_CI, ROWS
from tests.integrations.page import write_page


def main() -> int:
    """Run what is asked for; return 1 where one failed."""
    given = read_arguments()
    names = given.names or (IN_CI if given.ci else ("plain", *ROWS))
    timed = given.time or not (given.names or given.ci)
    plain = run_framework("plain", timed=timed)
    made: dict[str, Outcome] = {}
    for word in names:
        name, _, python = word.partition("=")
        if name == "plain":
            made[name] = plain
            report(name, plain, plain)
            continue
        found = python or ready(f"adapter-{name}")
        if not found:
            print(f"{name}: no environment")
            made[name] = Outcome(failed=["it has no environment here"])
            continue
        try:
            made[name] = run_framework(name, str(found), timed=timed)
            made[name].version = find_version(str(found), ROWS[name].distribution)
            made[name].failed += run_example(name, str(found))
        except FrameworkError as error:
            made[name] = Outcome(failed=[str(error)])
        report(name, made[name], plain)
    if not (given.names or given.ci):
        write_page(Path("docs/integrations.md"), made)
    return any(list_faults(name, one, plain) for name, one in made.items())


def read_arguments() -> argparse.Namespace:
    """Return what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--time", action="store_true")
    return parser.parse_args()


def report(name: str, made: Outcome, plain: Outcome) -> None:
    """Print what a framework's runs came to."""
    faults = list_faults(name, made, plain)
    print(f"{name} {made.version}: {'; '.join(faults) or 'conforms'}", flush=True)
    for run in (made.short, made.long, made.bounded):
        print(
            f"  {run.requests} requests, largest {run.largest:,}, refused {run.refused}, "
            f"breaks {run.breaks}"
        )
    print(f"  {made.said}, went on elsewhere {made.reopened}, {made.seconds}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
