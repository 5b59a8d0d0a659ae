"""The process that matches a pattern for the tool `search`; run by path, imports nothing of ullage.

Python's patterns can take exponential time, and a thread cannot be stopped, but a process can. It
reads a line of JSON (pattern, ignore_case, seconds, most, longest, sizes) followed by the files,
and writes the matches as JSON: a list of [file, line number, line]. It knows no paths.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from typing import BinaryIO

if sys.platform == "win32":
    raise ImportError("Windows has no bound on the time of a process")


def matching(source: BinaryIO) -> list[tuple[int, int, str]]:
    """Return the matching lines of the files that follow a request."""
    wishes = json.loads(source.readline())
    resource.setrlimit(resource.RLIMIT_CPU, (wishes["seconds"] + 1, wishes["seconds"] + 1))
    pattern = re.compile(wishes["pattern"], re.IGNORECASE if wishes["ignore_case"] else 0)
    found: list[tuple[int, int, str]] = []
    for file, size in enumerate(wishes["sizes"]):
        text = source.read(size).decode("utf-8", errors="replace")
        for number, line in enumerate(text.split("\n"), 1):
            hit = pattern.search(line)
            if hit is None:
                continue
            start = max(0, hit.start() - wishes["longest"] // 2)
            found.append((file, number, line[start : start + wishes["longest"]].rstrip("\r")))
            if len(found) > wishes["most"]:
                return found
    return found


if __name__ == "__main__":
    json.dump(matching(sys.stdin.buffer), sys.stdout)
