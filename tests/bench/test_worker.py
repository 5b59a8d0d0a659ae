"""What a worker answers: the jobs on a peer that is known by heart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import worker
from bench.peers.ours import Tallied, Ullage
from bench.transcript import Shape, write

SHAPE = Shape(60)


class Listed:
    """Counts messages, and tells how many it was handed each time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def read(self, messages: list[dict[str, Any]]) -> list[Any]:
        return list(messages)

    def count(self, history: list[Any]) -> int:
        self.asked.append(len(history))
        return len(history)


def saved(folder: Path) -> dict[str, str]:
    """Return a job on a transcript that was written to a file."""
    file = folder / "transcript.json"
    file.write_text(json.dumps(write(SHAPE)), encoding="utf-8")
    return {"transcript": str(file)}


def test_counting_adds_one_message_at_a_time(tmp_path: Path) -> None:
    peer: Any = Listed()
    answer = worker.count(peer, saved(tmp_path))
    first = SHAPE.messages - worker.MORE
    assert peer.asked == list(range(first, SHAPE.messages + 1))
    assert answer["tokens"] == SHAPE.messages


def test_a_tally_counts_what_a_recount_counts(tmp_path: Path) -> None:
    counted = [worker.count(peer, saved(tmp_path))["tokens"] for peer in (Ullage(), Tallied())]
    assert counted[0] == counted[1]


def test_a_tally_begins_again_with_another_history() -> None:
    peer, messages = Tallied(), write(SHAPE)
    peer.count(messages)
    assert peer.count(messages[:10]) == Ullage().count(messages[:10])


def test_a_trim_after_counting_is_read_twice(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    job = {**saved(tmp_path), "budget": 1_500, "out": str(out)}
    answer = worker.after(Ullage(), job)
    assert answer.keys() == {"trim_s", "again_s"}
    assert len(json.loads(out.read_text("utf-8"))) < SHAPE.messages


def test_a_peer_without_a_chain_of_its_own_is_trimmed_part_by_part(tmp_path: Path) -> None:
    class Last(Listed):
        """Keeps the last message of what it is handed."""

        def plain(self, history: list[Any]) -> list[Any]:
            return history

        def trim(self, history: list[Any], budget: int) -> list[Any]:
            self.asked.append(len(history))
            return history[-budget:]

    peer: Any = Last()
    out = tmp_path / "out.json"
    worker.chain(peer, {**saved(tmp_path), "budget": 1, "parts": [10, 30, 60], "out": str(out)})
    assert peer.asked == [10, 21, 31]
    assert json.loads(out.read_text("utf-8")) == write(SHAPE)[-1:]


def test_the_context_view_is_measured(tmp_path: Path) -> None:
    answer = worker.context(Ullage(), {**saved(tmp_path), "window": 50_000})
    assert answer.keys() == {"context_s", "again_s"}
    assert min(answer.values()) > 0


def test_holding_a_history_is_measured(tmp_path: Path) -> None:
    answer = worker.held(Ullage(), saved(tmp_path))
    assert answer.keys() == {"messages_mb", "counted_mb"}
