"""A driver of load, open loop: `python -m bench.proxy.load`, a job as JSON on standard input.

Requests go out when their time has come, whether or not those before were answered. It tells when
each was sent, when the first event or byte of its answer came, each gap between events, and the
end; all as percentiles in one line of JSON. Connections are kept and used again. It is bounded by
`count` and by `limit_s`, goes to the loopback only, and knows nothing of what it loads.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Final, cast

from bench.proxy import loops
from bench.proxy.reading import Answer

HOST: Final = "127.0.0.1"
MARK: Final = b"@" * 12
SHARES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be sent: `count` requests, `rate` a second.

    `bodies`: files of JSON, sent in turn; `MARK` in them gives way to a number of its own for each
    request, which begins elsewhere for another `seed`. `aborts`: the share of requests whose client
    leaves `abort_s` after sending. `limit_s`: what is not answered that long after the last was
    sent, is counted as unfinished.
    """

    port: int
    path: str
    bodies: tuple[str, ...]
    rate: float
    count: int
    headers: Mapping[str, str] = field(default_factory=dict)
    aborts: float = 0.0
    abort_s: float = 0.5
    limit_s: float = 30.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.count <= 0 or not self.bodies:
            raise ValueError(
                f"a job needs a rate, a count and bodies, and has {self.rate}, {self.count}, "
                f"{len(self.bodies)}"
            )

    def due_s(self, number: int) -> float:
        """Return when a request is to be sent, in seconds from the start."""
        return number / self.rate


class Record:
    """What was seen: seconds, one entry a request or a gap."""

    def __init__(self) -> None:
        self.late, self.first, self.end, self.gaps = (array("d") for _ in range(4))
        self.sent = self.done = self.events = self.aborted = self.connections = 0
        self.failed: dict[str, int] = {}

    def fail(self, why: str) -> None:
        """Count an answer that was none."""
        self.failed[why] = self.failed.get(why, 0) + 1

    def shown(self, seconds: float) -> dict[str, Any]:
        """Return it as JSON: seconds as percentiles."""
        times = {"late": self.late, "first": self.first, "end": self.end, "gap": self.gaps}
        return {
            **{name: percentiles(values) for name, values in times.items()},
            "sent": self.sent,
            "done": self.done,
            "events": self.events,
            "aborted": self.aborted,
            "failed": self.failed,
            "connections": self.connections,
            "seconds": seconds,
        }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the smallest values that so large a share of all is not above; none of nothing."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {name: ordered[ceil(share * len(ordered)) - 1] for name, share in SHARES.items()}


class Client(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._answer: Answer | None = None
        self._sent = self._before = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport by type
        self._transport = cast("asyncio.Transport", transport)

    def send(self, data: bytes) -> None:
        """Send a request."""
        self._answer = Answer()
        self._sent = self._load.clock()
        self._before = 0.0
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        now, answer = self._load.clock(), self._answer
        if answer is None:
            self._transport.abort()  # more came than was asked for
            return
        try:
            found = answer.feed(data)
        except ValueError:
            self._over("no answer")
            self._transport.abort()
            return
        if found or (answer.ended and not self._before):
            self._note(now, found)
        if answer.ended:
            self._finish(answer, now)

    def _note(self, now: float, found: int) -> None:
        record = self._load.record
        if self._before:
            record.gaps.append(now - self._before)
        else:
            record.first.append(now - self._sent)
        record.gaps.extend([0.0] * (found - 1))
        self._before = now

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.gone(self)
        if self._answer is not None:
            self._over("lost")

    def abort(self, number: int) -> None:
        """Leave before the answer's end, if that request is still being answered."""
        if self._answer is not None and self._load.number(self) == number:
            self._load.record.aborted += 1
            self._over("")
            self._transport.abort()

    def drop(self) -> None:
        """Close for good."""
        if self._answer is not None:
            self._over("unfinished")
        self._transport.abort()

    def _finish(self, answer: Answer, now: float) -> None:
        if answer.status == 200:
            self._load.record.end.append(now - self._sent)
            self._load.record.done += 1
        self._over("" if answer.status == 200 else f"status {answer.status}")
        if answer.closes:
            self._transport.close()
        else:
            self._load.idle.append(self)

    def _over(self, why: str) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        self._load.record.events += answer.events
        if why:
            self._load.record.fail(why)
        self._load.over()


class Load:
    """A job under way."""

    def __init__(self, job: Job, clock: Callable[[], float] = time.perf_counter) -> None:
        self.job = job
        self.clock = clock
        self.record = Record()
        self.idle: list[Client] = []
        self._open: dict[Client, int] = {}
        self._messages = [_message(job, body) for body in job.bodies]
        self._marked = any(MARK in message for message in self._messages)
        self._under_way = 0
        self._ended = asyncio.Event()

    async def run(self) -> dict[str, Any]:
        """Send all; wait for the answers as long as the job says; return what was seen."""
        job, chance = self.job, random.Random(self.job.seed)
        loop, tasks = asyncio.get_running_loop(), set()
        start = self.clock()
        for number in range(job.count):
            wait = start + job.due_s(number) - self.clock()
            if wait > 0:
                await asyncio.sleep(wait)
            self._under_way += 1
            leaves = chance.random() < job.aborts
            task = loop.create_task(self._send(number, start + job.due_s(number), leaves))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        try:
            async with asyncio.timeout(job.limit_s):
                await asyncio.gather(*tuple(tasks))
                if self._under_way:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            self.record.fail("timed out")
        seconds = self.clock() - start
        for client in tuple(self._open):
            client.drop()
        return self.record.shown(seconds)

    async def _send(self, number: int, due: float, leaves: bool) -> None:
        loop = asyncio.get_running_loop()
        if self.idle:
            client = self.idle.pop()
        else:
            try:
                _, client = await loop.create_connection(lambda: Client(self), HOST, self.job.port)
            except OSError:
                self.record.fail("not reached")
                self.over()
                return
            self.record.connections += 1
        self._open[client] = number
        self.record.sent += 1
        self.record.late.append(self.clock() - due)
        client.send(self._message(number))
        if leaves:
            loop.call_later(self.job.abort_s, client.abort, number)

    def _message(self, number: int) -> bytes:
        message = self._messages[number % len(self._messages)]
        mark = self.job.seed * 1_000_000 + number
        return message.replace(MARK, b"%0*d" % (len(MARK), mark)) if self._marked else message

    def number(self, client: Client) -> int:
        """Return which request a connection was last used for."""
        return self._open[client]

    def over(self) -> None:
        """Count one request as over."""
        self._under_way -= 1
        if not self._under_way:
            self._ended.set()

    def gone(self, client: Client) -> None:
        """Forget a connection."""
        self._open.pop(client, None)
        if client in self.idle:
            self.idle.remove(client)


def _message(job: Job, file: str) -> bytes:
    body = Path(file).read_bytes()
    headers = {
        "host": f"{HOST}:{job.port}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **job.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {job.path} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def _run(job: Job) -> dict[str, Any]:
    return await Load(job).run()


def main() -> None:
    """Read the job, do it, print what was seen."""
    told = json.load(sys.stdin)
    job = Job(**{**told, "bodies": tuple(told["bodies"])})
    print(json.dumps(loops.run(_run(job))))


if __name__ == "__main__":
    main()
