"""`python -m tests.integrations NAME=PYTHON ...`: run the suite, print one line a framework."""

from __future__ import annotations

import sys

from tests.integrations.conformance import FrameworkError, run_framework


def main() -> int:
    """Run the frameworks that are named; return 1 where one failed."""
    failed = False
    timed = "--time" in sys.argv
    for word in (word for word in sys.argv[1:] if not word.startswith("--")):
        name, _, python = word.partition("=")
        try:
            made = run_framework(name, python or sys.executable, timed=timed)
        except FrameworkError as error:
            print(error)
            failed = True
            continue
        failed = failed or bool(made.failed or made.faults or made.lost)
        for run in (made.short, made.long):
            print(
                f"{name}: {run.requests} requests, largest {run.largest:,}, refused {run.refused}, "
                f"breaks {run.breaks}"
            )
        print(f"  failed {made.failed}, faults {made.faults}, lost {made.lost}")
        print(f"  sizes {made.sizes}, {made.said}, reopened {made.reopened}, {made.seconds}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
