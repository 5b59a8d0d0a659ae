"""The command: `ullage` and `python -m ullage`.

A status line is drawn at every prompt, so its command starts before the others are loaded.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:2] == ["statusline"]:
        from ullage.cli.statusline import begin

        code = begin(sys.argv[2:])
        if code is not None:
            return code
    from ullage.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
