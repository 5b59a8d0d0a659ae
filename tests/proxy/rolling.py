"""Two replicas behind a dumb balancer under mixed traffic, one of them ended again and again.

`python -m tests.proxy.rolling --minutes 10` runs it at full size and prints the figures of
docs/replicas.md; `--kill` has the replicas killed instead. The tests run the same, short and long.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2

from tests.proxy.balancing import Balancer, Replica, Restarts
from tests.proxy.mixed import Dialect, Failure, MixedClient, ModelServer, Record, Seen, digest
from tests.support.postgres import Server, obtain

CLIENTS: Final[Sequence[tuple[Dialect, bool, bool]]] = (
    ("chat", True, True),
    ("chat", False, False),
    ("messages", True, False),
    ("messages", False, True),
    ("responses", True, True),
    ("responses", False, False),
    ("chained", True, False),
    ("chained", False, True),
)
"""Dialect, whether it streams, whether it keeps its connection open."""

PINNED: Final = 3
"""The message that an operator pins: the second question of the first conversation."""

HEARD_S: Final = 1.5
"""Seconds in which every replica has heard of a pin."""


@dataclass(slots=True)
class Run:
    """What is run: for how long, how often a replica is ended, and how the conversations grow."""

    seconds: float
    every_s: float
    kills: bool = False
    window: int = 6_000
    sizes: tuple[int, int] = (2, 9)
    turns: int = 40


@dataclass(slots=True)
class Prefixes:
    """What became of known prefixes, by the prompts that reached the server."""

    grown: int = 0
    kept: int = 0
    compacted: int = 0
    again: int = 0
    again_same: int = 0
    went_back: list[str] = field(default_factory=list)
    unpinned: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    records: dict[str, Record]
    restarts: Restarts
    prefixes: Prefixes
    retried: int
    refused: int
    pinned: bool
    logs: str

    @property
    def outages(self) -> int:
        """How often a replica found the store away, or without an answer for a second.

        Then each goes on alone, and what it compacts meanwhile is not known to the other.
        """
        return self.logs.count("the store is away")

    @property
    def turns(self) -> int:
        """How many turns were answered."""
        return sum(record.turns for record in self.records.values())

    @property
    def failures(self) -> list[str]:
        """Why turns failed that no kill explains: those under way at one may fail."""
        times = zip(self.restarts.at, self.restarts.gone, strict=False)
        kills = tuple(times) if self.restarts.kills else ()
        return [
            f"{failure.why} {self._place(failure)}"
            for record in self.records.values()
            for failure in record.failures
            if not any(failure.began <= gone and at <= failure.ended for at, gone in kills)
        ]

    def _find_longest_end(self) -> float:
        times = zip(self.restarts.at, self.restarts.gone, strict=False)
        return max((gone - at for at, gone in times), default=0.0)

    def _place(self, failure: Failure) -> str:
        """Say when a failure was, by the last signal before its end."""
        before = [at for at in self.restarts.at if at <= failure.ended]
        if not before:
            return "before the first signal"
        began, ended = failure.began - before[-1], failure.ended - before[-1]
        return f"from {began:+.3f} to {ended:+.3f} s after signal {len(before)}"

    def describe(self) -> dict[str, Any]:
        """Return the figures."""
        records = self.records.values()
        took = sorted(second for record in records for second in record.seconds)
        found = self.prefixes
        return {
            "turns": self.turns,
            "by client": {name: record.turns for name, record in self.records.items()},
            "failed turns": len(self.failures),
            "failed, under way at a kill": sum(len(r.failures) for r in records)
            - len(self.failures),
            "restarts": len(self.restarts.at),
            "exit codes": sorted(set(self.restarts.codes)),
            "seconds to end, longest": round(self._find_longest_end(), 2),
            "refused connections retried by the balancer": self.retried,
            "known prefixes that grew": found.grown,
            "of these with the same bytes": found.kept,
            "of these compacted": found.compacted,
            "went back": len(found.went_back),
            "outages of the store": self.outages,
            "histories sent again": found.again,
            "of these in the same bytes": found.again_same,
            "prompts refused by the server": self.refused,
            "pinned": self.pinned,
            "prompts without what was pinned": len(found.unpinned),
            "responses without a size": {
                name: record.unmeasured for name, record in self.records.items()
            },
            "seconds a turn, p50 and p99": [
                round(took[int(len(took) * share)], 3) for share in (0.5, 0.99) if took
            ],
        }


def run_rolling(run: Run, store: str, folder: Path) -> Outcome:
    """Run it: replicas over `store`, their logs in `folder`."""
    with ExitStack() as stack:
        server = stack.enter_context(ModelServer(run.window))
        replicas = [
            stack.enter_context(Replica(server.root_url, store, folder / f"{name}.log"))
            for name in ("one", "two")
        ]
        balancer = stack.enter_context(Balancer(replicas))
        clients = [
            MixedClient(number, balancer.url, dialect, streams=streams, keeps_open=keeps_open)
            for number, (dialect, streams, keeps_open) in enumerate(CLIENTS)
        ]
        pins = dict[str, bytes]()
        clients[0].after_turn = partial(_pin_once, replicas, pins)
        for client in clients:
            client.sizes, client.turns = run.sizes, run.turns
            client.start()
        restarts = Restarts(replicas, run.every_s, kills=run.kills)
        restarts.start()
        try:
            time.sleep(run.seconds)
        finally:
            restarts.stop()
            for client in clients:
                client.stop()
        named = {_name(client): client.record for client in clients}
        return Outcome(
            named,
            restarts,
            judge(server.seen, pins),
            balancer.retried,
            server.refused,
            bool(pins),
            "".join(replica.said() for replica in replicas),
        )


def _name(client: MixedClient) -> str:
    dialect, streams, keeps_open = CLIENTS[client.number]
    kind = "stream" if streams else "whole"
    return f"{dialect}, {kind}, {'kept open' if keeps_open else 'closed'}"


def judge(seen: Mapping[str, Sequence[Seen]], pins: Mapping[str, bytes]) -> Prefixes:
    """Return what became of known prefixes. `pins` are pinned messages by conversation."""
    conversations: dict[str, dict[int, list[Seen]]] = defaultdict(dict)
    for tag, prompts in seen.items():
        name, _, turn = tag.partition("/")
        answered = [prompt for prompt in prompts if not prompt.refused]
        if answered and turn.isdecimal():
            conversations[name][int(turn)] = answered
    found = Prefixes()
    for name, by_turn in conversations.items():
        if CLIENTS[int(name.partition(".")[0])][0] != "chained":
            _judge_conversation(found, name, [by_turn[turn] for turn in sorted(by_turn)])
        pinned = pins.get(name)
        later = [one for turn, prompts in by_turn.items() if turn > PINNED for one in prompts]
        if pinned is not None:
            found.unpinned += [name for one in later if pinned not in one.messages]
    return found


def _judge_conversation(found: Prefixes, name: str, turns: Sequence[list[Seen]]) -> None:
    left: list[tuple[bytes, ...]] = []  # the last prompt before each compaction
    last: tuple[bytes, ...] | None = None
    for number, prompts in enumerate(turns):
        shapes = [one for one, _ in groupby(prompt.body for prompt in prompts)]
        if len(shapes) != len(set(shapes)):
            found.went_back.append(f"{name}: turn {number} came out as before again")
        found.again += len(prompts) - 1
        found.again_same += len(prompts) - len(shapes)
        for prompt in prompts:
            now = prompt.messages
            if last is not None and now != last:
                found.grown += 1
                if now[: len(last)] == last:
                    found.kept += 1
                else:
                    found.compacted += 1
                    left.append(last)
                if any(now[: len(old)] == old for old in left):
                    found.went_back.append(f"{name}: turn {number} begins as before a compaction")
            last = now


def _pin_once(
    replicas: Sequence[Replica], pins: dict[str, bytes], name: str, turn: int, said: Sequence[Any]
) -> None:
    """Pin a message of the first conversations as an operator does, at the replica that had it."""
    if turn != PINNED - 1 or name in pins:
        return
    with httpx2.Client(timeout=20, trust_env=False) as http:
        for replica in replicas:
            try:
                if _pin(http, replica.url, name):
                    pins[name] = digest(json.dumps(said[PINNED]).encode())
                    break
            except httpx2.TransportError:
                continue  # it was just ended
    time.sleep(HEARD_S)


def _pin(http: httpx2.Client, url: str, name: str) -> bool:
    told = http.get(f"{url}/ullage/conversations", headers={"accept": "application/json"})
    rows = [row for row in told.json()["conversations"] if f"of {name}:" in row["title"]]
    for row in rows:
        key = quote(f"{row['source']}/{row['id']}", safe="")
        asked = {"action": "pin", "message": PINNED}
        done = http.post(f"{url}/ullage/act?of={key}", json=asked)
        if done.status_code == 200 and done.json()["done"]["pinned"]:
            return True
    return False


def _list_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proxy.rolling", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two restarts")
    parser.add_argument("--kill", action="store_true", help="kill -9 instead of SIGTERM")
    parser.add_argument("--logs", type=Path, help="a folder for the logs of the replicas")
    return parser.parse_args()


def _list_lines(outcome: Outcome) -> Iterator[str]:
    for name, value in outcome.describe().items():
        yield f"{name}: {json.dumps(value)}"
    yield from outcome.failures[:10]
    yield from outcome.prefixes.went_back[:10]
    yield from outcome.prefixes.unpinned[:10]


def main() -> int:
    """Run it at the size that is asked for; 1 where something is not as it must be."""
    given = _list_arguments()
    run = Run(given.minutes * 60, given.every, kills=given.kill)
    with tempfile.TemporaryDirectory() as folder, Server(obtain()) as database:
        outcome = run_rolling(run, database.created(), given.logs or Path(folder))
    sys.stdout.write("".join(f"{line}\n" for line in _list_lines(outcome)))
    found = outcome.prefixes
    apart = bool(found.went_back or found.unpinned) and not outcome.outages
    return int(bool(outcome.failures) or apart)


if __name__ == "__main__":
    sys.exit(main())
