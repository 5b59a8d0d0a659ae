"""A corpus of made-up agent sessions with the sizes of a published one.

`python -m bench.traces FOLDER` writes it. TraceLab (2026) has 4,265 sessions of coding agents with
357,161 calls of a model. Half of the sessions have 25 calls or fewer, a tenth more than 176, a
hundredth more than 1,438. The sessions drawn here have the same number of calls. They are files of
Claude Code with token reports, and with times, so that caches expire. Their text is made up
(`bench.transcript`). The module does not depend on the reader.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Any, Final

from bench.transcript import AgentTalk

SESSIONS, CALLS = 4_265, 357_161
QUANTILES: Final = ((0.0, 1), (0.5, 25), (0.9, 176), (0.99, 1_438), (1.0, 1_900))
"""Shares of the sessions, and the most calls of each; all but the last are published."""

MODEL: Final = "claude-sonnet-4-5"
BESIDE: Final = 16_000
"""Tokens of system prompt and tools in addition to the messages, as such programs send them."""

STEP_S, PAUSE_S = 12.0, 420.0
"""Median seconds of a call, and of a person's pause before the next request."""

START: Final = datetime(2026, 3, 2, 8, tzinfo=UTC)


def list_sizes(sessions: int = SESSIONS) -> list[int]:
    """Return the number of calls of each session, smallest first; their sum is `CALLS`.

    The logarithm grows linearly between the quantiles, but from 90 % to 99 % by a power that gives
    the right sum. Fewer sessions are an even sample of all.
    """
    low, high = 1.0, 12.0
    for _ in range(40):
        power = (low + high) / 2
        if sum(_draw_sizes(power)) > CALLS:
            low = power
        else:
            high = power
    sizes = _draw_sizes(high)
    middle = range(SESSIONS * 6 // 10, SESSIONS * 9 // 10)
    missing = CALLS - sum(sizes)
    for number in range(abs(missing)):
        sizes[middle[number % len(middle)]] += 1 if missing > 0 else -1
    return [sizes[(2 * number + 1) * SESSIONS // (2 * sessions)] for number in range(sessions)]


def _draw_sizes(power: float) -> list[int]:
    sizes = []
    for number in range(SESSIONS):
        share = (number + 0.5) / SESSIONS
        (at, least), (to, most) = next((a, b) for a, b in pairwise(QUANTILES) if share <= b[0])
        way = (share - at) / (to - at)
        way = way**power if least == QUANTILES[2][1] else way  # only 90 % to 99 % follows the power
        sizes.append(round(exp(log(least) + way * (log(most) - log(least)))))
    return sizes


def write_corpus(folder: Path, sessions: int = SESSIONS) -> int:
    """Write the sessions, one file each; return their size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for number, size in enumerate(list_sizes(sessions)):
        path = folder / f"{number:05}.jsonl"
        text = "".join(json.dumps(line) + "\n" for line in write_session(number, size))
        written += path.write_text(text, encoding="utf-8")
    return written


def write_session(seed: int, calls: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of a session with this many calls."""
    rng = random.Random(f"trace {seed}")
    writer = _TraceWriter(rng, seed)
    talk = AgentTalk(random.Random(f"talk {seed}"))
    yield writer.user(talk.request()["content"])
    made = 0
    while made < calls:
        asks = made and rng.random() < 0.12
        for message in talk.exchange() if asks else talk.step(rng.choice((1, 1, 1, 2, 3))):
            yield writer.write(message)
        made += 1


class _TraceWriter:
    """Makes lines, each linked to the previous one, with times and token reports."""

    def __init__(self, rng: random.Random, seed: int) -> None:
        self._rng = rng
        self._id = f"{seed:08}-0000-4000-8000-000000000000"
        self._lines = 0
        self._last: str | None = None
        self._at = START + timedelta(hours=rng.random() * 2_000)
        self._tokens = BESIDE
        self._sent = 0

    def write(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["role"] == "assistant":
            self._wait(STEP_S)
            return self._answer(message)
        if message["role"] == "tool":
            result = {"tool_use_id": message["tool_call_id"], "type": "tool_result"}
            return self._line("user", [result | {"content": message["content"]}])
        self._wait(PAUSE_S)
        return self.user(message["content"])

    def user(self, text: str) -> dict[str, Any]:
        return self._line("user", text)

    def _wait(self, median_s: float) -> None:
        self._at += timedelta(seconds=median_s * self._rng.lognormvariate(0, 1))

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        blocks = [{"type": "text", "text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls") or ():
            function = call["function"]
            asked = json.loads(function["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"]})
            blocks[-1]["input"] = asked
        usage = {
            "input_tokens": 3,
            "cache_read_input_tokens": self._sent,
            "cache_creation_input_tokens": max(self._tokens - self._sent - 3, 0),
            "output_tokens": len(json.dumps(blocks)) // 4,
        }
        self._sent = self._tokens
        made = {"model": MODEL, "id": f"msg_{self._id[:8]}{self._lines:06}", "role": "assistant"}
        return self._line("assistant", blocks, **made, usage=usage)

    def _line(self, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
        self._tokens += len(json.dumps(content)) // 4
        self._lines += 1
        before, self._last = self._last, f"{self._id[:24]}{self._lines:012}"
        return {
            "parentUuid": before, "isSidechain": False, "cwd": "/home/dev/project", "type": kind,
            "sessionId": self._id, "uuid": self._last, "version": "2.0.76",
            "timestamp": self._at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "message": {"role": kind, "content": content, **fields},
        }  # fmt: skip


def main() -> None:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    given = parser.parse_args()
    written, calls = write_corpus(given.folder, given.sessions), sum(list_sizes(given.sessions))
    print(f"{given.sessions:,} sessions, {calls:,} calls, {written / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
