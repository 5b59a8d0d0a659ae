"""Answers that real servers gave, kept in a file and played back by `faults.FaultServer`.

A recording is JSON: `server` and `note` in words, and `exchanges`, each with `method`, `path`,
`status` and `body` (JSON, or text). It knows nothing of what the answers mean.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.faults import Answer, of_json


@dataclass(frozen=True, slots=True)
class Exchange:
    """Keep one request line and what came back; `body` is parsed JSON or a text."""

    method: str
    path: str
    status: int
    body: Any  # the JSON edge


@dataclass(frozen=True, slots=True)
class Recording:
    """Keep the exchanges of one server in the order in which they happened."""

    server: str
    note: str
    exchanges: tuple[Exchange, ...]

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read a recording. Raises OSError, or ValueError if it is not of the form above."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        try:
            exchanges = tuple(Exchange(**exchange) for exchange in raw["exchanges"])
            return cls(raw["server"], raw["note"], exchanges)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a recording: {error!r}") from error

    def answers(self, method: str, path: str) -> tuple[Answer, ...]:
        """Return what `method path` was answered, in order. Raises KeyError if it never was."""
        found = tuple(_answer(e) for e in self.exchanges if (e.method, e.path) == (method, path))
        if not found:
            raise KeyError(f"{method} {path} is not in the recording {self.note!r}")
        return found

    def routes(self) -> dict[str, tuple[Answer, ...]]:
        """Return the answers by `METHOD path`: the first one first, the last one stays."""
        keys = dict.fromkeys((e.method, e.path) for e in self.exchanges)
        return {f"{method} {path}": self.answers(method, path) for method, path in keys}


def _answer(exchange: Exchange) -> Answer:
    if isinstance(exchange.body, str):
        return Answer(
            exchange.status, (exchange.body.encode(),), content_type="text/plain; charset=utf-8"
        )
    return of_json(exchange.body, exchange.status)
