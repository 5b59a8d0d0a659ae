"""A worker in a thread of the test's own process, for what needs no killing."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.agent.victim import QUICK, Bump
from tests.support.waiting import eventually
from tests.workers.crew import Crew, Slow, end
from ullage.agent import Agent
from ullage.providers import Provider
from ullage.tools import Executor, Tool
from ullage.workers.worker import TurnWorker

LONGEST_S: Final = 60.0


def make_agent(folder: Path, model: str) -> Agent:
    """Return an agent whose tools leave lines in a folder."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    tools: list[Tool] = [Bump(str(folder)), Slow(str(folder))]
    return Agent(
        Provider("model", model, limits=QUICK),
        executor=lambda _: Executor(folder / "work", tools=tools),
        window=100_000,
    )


def make_worker(
    store: str, folder: Path, model: str, engine: str, **terms: Any
) -> Hands | CrewHands:
    """Return a worker for a block: in a thread, or in a process where the engine is DBOS.

    DBOS is one for a whole process, and is not begun in it a second time.
    """
    if engine == "dbos":
        return CrewHands(Crew(store, engine, folder, model, 3.0), terms)
    return Hands(store, make_agent(folder, model), engine, **terms)


class CrewHands:
    """One worker in a process of its own, from the beginning of a block to its end."""

    def __init__(self, crew: Crew, terms: dict[str, Any]) -> None:
        self._crew, self._terms = crew, terms

    def __enter__(self) -> Self:
        given = [word for name, value in self._terms.items() for word in (f"--{name}", str(value))]
        self._member = self._crew.start("one", "--drain-s", "5", *given)
        return self

    def leave(self) -> None:
        """Leave what is under way to others, and wait for the end."""
        self._member.send_signal(signal.SIGTERM)
        eventually(lambda: "takes no job more" in self._crew.said())
        end(self._member, signal.SIGTERM)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._crew:
            if self._member.poll() is None:
                end(self._member, signal.SIGTERM)
        assert self._member.returncode == 0, self._crew.said()


class Hands:
    """One worker, from the beginning of a block to its end."""

    def __init__(self, store: str, agent: Agent, engine: str | None = None, **terms: Any) -> None:
        self.worker = TurnWorker(
            store, agent, engine=engine, **{"lease_s": 3.0, "drain_s": 5.0, **terms}
        )
        self._loop = asyncio.new_event_loop()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self.worker.arun())
        except BaseException as error:  # noqa: BLE001 - it is raised in the test
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def leave(self) -> None:
        """Leave what is under way to others, and wait for the end."""
        self._loop.call_soon_threadsafe(self.worker.drain)
        self._loop.call_soon_threadsafe(self.worker.leave)
        self.end()

    def end(self) -> None:
        """Drain, and wait for the end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.worker.drain)
            self._thread.join(LONGEST_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
