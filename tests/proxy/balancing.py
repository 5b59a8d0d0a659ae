"""A dumb balancer, and replicas of a proxy behind it that are ended, killed and started again.

The balancer hands each connection to the next replica in turn. It tries another one where a
connection is refused, as nginx does with `proxy_next_upstream error`, and knows nothing else: no
HTTP, no health. A replica is a process of `ullage serve` on a port that stays the same.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.waiting import eventually

PATIENCE_S: Final = 60.0
LEAVE_S: Final = 2.0
"""Seconds for which a replica takes requests after SIGTERM: longer than clients here are silent on
a connection that they keep open, so that each is told that it ends."""

LISTENING: Final = re.compile(r"listening on (http://\S+)")


class Replica:
    """A proxy in a process of its own, on a port that stays the same when it starts again.

    Its cache folder is beside its log and its own, as on another machine.
    """

    def __init__(self, upstream: str, store: str, log: Path, *words: str) -> None:
        self._command = [
            *(sys.executable, "-m", "ullage.cli.main", "serve"),
            *("--upstream", upstream, "--store", store, *words),
        ]
        self._log = log
        self._environment = {
            **os.environ,
            "ULLAGE_CACHE_DIR": str(log.with_suffix(".cache")),
            "ULLAGE_SERVE__LEAVE_S": str(LEAVE_S),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it; return when it listens."""
        before = len(self.said())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(self.port)],
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        running = self._process
        eventually(
            lambda: (
                LISTENING.search(self.said()[before:]) is not None or running.poll() is not None
            ),
            within_s=PATIENCE_S,
        )
        found = LISTENING.search(self.said()[before:])
        assert found is not None, self.said()
        self.url = found[1]
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End it as a crash would."""
        running, self._process = self._process, None
        if running is not None:
            os.kill(running.pid, signal.SIGKILL)
            running.wait(PATIENCE_S)

    def signal(self) -> None:
        """Ask it to end, as a service manager does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """Ask it to end, and wait for that; return its exit code."""
        self.signal()
        assert self._process is not None
        running, self._process = self._process, None
        return running.wait(PATIENCE_S)

    def said(self) -> str:
        """Return what it has printed."""
        return self._log.read_text("utf-8") if self._log.exists() else ""


class Balancer:
    """Hands connections to replicas in turn; `retried` counts those that one had refused."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._ports = [replica.port for replica in replicas]
        self._next = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._begun = threading.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self.retried = 0
        self.broken: list[tuple[float, str]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._begun.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        async def begin() -> asyncio.Server:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return server

        server = self._loop.run_until_complete(begin())
        self._begun.set()
        self._loop.run_forever()
        server.close()
        for task in self._connections:
            task.cancel()
        self._loop.run_until_complete(_gather(self._connections))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            there, back = await self._connect()
            try:
                await asyncio.gather(_carry(reader, back), _carry(there, writer))
            finally:
                back.close()
        except OSError as error:
            self.broken.append((time.monotonic(), repr(error)))
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the next replica that takes connections. Raises OSError where none does."""
        self._next += 1
        first = self._next % len(self._ports)
        *ports, last = self._ports[first:] + self._ports[:first]
        for port in ports:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                self.retried += 1
        return await asyncio.open_connection("127.0.0.1", last)


async def _gather(tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry bytes until one side ends; the other is told."""
    try:
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
    finally:
        with suppress(OSError, RuntimeError):
            sink.write_eof()


class Restarts(threading.Thread):
    """Ends one replica after the other and starts it again, until told to stop.

    With `kills` they are killed. `at` are the moments of it (`time.monotonic`), `gone` those at
    which the process was no more, `codes` the exit codes of those that were not killed.
    """

    def __init__(self, replicas: Sequence[Replica], every_s: float, *, kills: bool = False) -> None:
        super().__init__(daemon=True)
        self._replicas, self._every_s, self.kills = replicas, every_s, kills
        self._ended = threading.Event()
        self.at: list[float] = []
        self.gone: list[float] = []
        self.codes: list[int] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        """Restart until told to stop."""
        number = 0
        try:
            while not self._ended.wait(self._every_s):
                replica = self._replicas[number % len(self._replicas)]
                self.at.append(time.monotonic())
                if self.kills:
                    replica.kill()
                else:
                    self.codes.append(replica.end())
                self.gone.append(time.monotonic())
                replica.start()
                number += 1
        except BaseException as error:  # noqa: BLE001 - told by whoever joins
            self.error = error

    def stop(self) -> None:
        """Restart no more; raises what went wrong."""
        self._ended.set()
        self.join(PATIENCE_S * 2)
        if self.error is not None:
            raise self.error
