"""Another program at an SQLite file: in a process of its own, since locks are a process's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1])
file.execute(sys.argv[2])
file.commit()
file.close()
"""


def run_elsewhere(path: Path, sql: str) -> None:
    """Run a statement on a file that a store here has open."""
    subprocess.run([sys.executable, "-I", "-c", PROGRAM, str(path), sql], check=True, timeout=60)
