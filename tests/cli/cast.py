"""Make the moving picture of the README: `python -m tests.cli.cast`.

It runs `ullage demo` in a real tmux with a model that can answer from what it is told (half a
billion parameters; the demo's own cannot), keeps every screen that differs from the one before,
and writes them as one SVG that plays for 20 seconds, over and over. Nothing is drawn that was not
shown.
"""

from __future__ import annotations

import html
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.cli.screens import SCREENS, Pane

COLUMNS, ROWS = 84, 26
SECONDS: Final = 20.0
LONGEST_S: Final = 1_800.0
MODEL: Final = "qwen2.5-coder-0.5b"
LAST: Final = 6
"""How many times as long as another one the last screen is shown."""

CELL, LINE = 8.4, 18
ENDED: Final = "[the end]"


def record(folder: Path) -> list[str]:
    """Return the screens of the demo, each once."""
    pane = Pane(folder / "tmux", {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"})
    demo = f"{sys.executable} -m ullage demo --model {MODEL}"
    command = f"{demo}; echo '{ENDED}'; exec sleep 60"
    pane.tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "sh", "-c", command)
    frames: list[str] = []
    until = time.monotonic() + LONGEST_S
    try:
        while time.monotonic() < until:
            screen = pane.tmux("capture-pane", "-p").rstrip()
            if screen and (not frames or screen != frames[-1]):
                frames.append(screen)
            if ENDED in screen:
                return [frame.replace(ENDED, "").rstrip() for frame in frames]
            time.sleep(0.1)
    finally:
        pane.tmux("kill-server")
    raise AssertionError(f"the demo did not end:\n{frames[-1]}")


def thin(frames: list[str], most: int = 40) -> list[str]:
    """Return at most so many frames of the conversation, evenly, and all of the questions."""
    asked = next((n for n, frame in enumerate(frames) if "asked:" in frame), len(frames))
    told, questions = frames[:asked], frames[asked:]
    if len(told) <= most:
        return frames
    step = (len(told) - 1) / (most - 1)
    return [*(told[round(n * step)] for n in range(most)), *questions]


def draw(frames: list[str]) -> str:
    """Return frames as one picture that moves by itself."""
    width, height = round(COLUMNS * CELL) + 24, ROWS * LINE + 24
    beats = len(frames) - 1 + LAST
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'aria-label="ullage demo: without the guard the server refuses, with it every turn is '
            'answered"><style>text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#ececea;'
            "white-space:pre}g{visibility:hidden}</style>"
        ),
        f'<rect width="{width}" height="{height}" rx="10" fill="#121316"/>',
    ]
    for number, frame in enumerate(frames):
        begin = SECONDS * number / beats
        lasts = SECONDS * (LAST if number == len(frames) - 1 else 1) / beats
        rows = "".join(
            f'<text x="12" y="{24 + LINE * row}">{html.escape(line)}</text>'
            for row, line in enumerate(frame.split("\n"))
            if line.strip()
        )
        shown = f"{begin / SECONDS:.4f};{min(1.0, (begin + lasts) / SECONDS):.4f}"
        parts.append(
            f'<g>{rows}<animate attributeName="visibility" values="hidden;visible;hidden" '
            f'keyTimes="0;{shown}" calcMode="discrete" dur="{SECONDS:g}s" '
            'repeatCount="indefinite"/></g>'
        )
    return f"{''.join(parts)}</svg>\n"


def main() -> None:
    """Record and write."""
    with tempfile.TemporaryDirectory() as name:
        frames = thin(record(Path(name)))
    (SCREENS / "demo.svg").write_text(draw(frames), "utf-8")


if __name__ == "__main__":
    main()
