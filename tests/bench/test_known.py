"""The bench of known histories measures what it says, and its part of the page is made of that."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import known
from bench.measure import QUICK
from bench.transcript import Shape, turns, write


def test_a_small_run_gives_all_that_the_page_shows(tmp_path: Path) -> None:
    file = tmp_path / "transcript.json"
    messages = write(Shape(60))
    file.write_text(json.dumps(messages), encoding="utf-8")
    found: dict[str, Any] = {}
    for label, window in (("filled", 2_500), ("wide", known.WIDE)):
        job = {"transcript": str(file), "turns": 12, "window": window, "output": 200}
        for name, read in ((label, known.take), (f"{label}, long", known.go_on)):
            answer = read(known.make_guard(window), job)
            row = {key: [value] if key.endswith("_s") else value for key, value in answer.items()}
            found[name] = {"ullage": row}
    assert found["filled"]["ullage"]["compactions"] > 0 == found["wide"]["ullage"]["compactions"]
    taken = list(turns(messages))[:12]
    assert found["wide"]["ullage"]["messages"] == sum(map(len, taken))
    assert found["wide, long"]["ullage"]["messages"] == 60
    page = known.shown({"plan": asdict(QUICK), "known": found})
    assert "| nothing compacted |" in page
    assert "tiktoken counting the history anew each turn took - ms" in page
