"""Fixtures of the workers' tests: stores for each engine, a scripted model, crews."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.thinking import Asked, Thinking
from tests.workers.crew import Crew

SCRIPT: Sequence[Sequence[Asked]] = ((("bump", {}),), (("bump", {}), ("bump", {})))
"""Two rounds of calls, then an answer."""


@pytest.fixture(scope="module")
def model() -> Iterator[Thinking]:
    with Thinking(SCRIPT) as server:
        yield server


@pytest.fixture
def find_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Return a function that gives a new store for an engine."""

    def find(engine: str) -> str:
        if engine == "sqlite":
            return f"sqlite://{tmp_path}/state/log.db"
        made: str = request.getfixturevalue("postgres_database")()
        return made

    return find


@pytest.fixture
def make_crew(
    model: Thinking, tmp_path: Path, find_store: Callable[[str], str]
) -> Iterator[Callable[..., Crew]]:
    """Return a function that makes a crew of an engine; its workers end with the test."""
    with ExitStack() as held:

        def make(engine: str, lease_s: float = 2.0, model_url: str | None = None) -> Crew:
            store = find_store(engine)
            crew = Crew(store, engine, tmp_path / "crew", model_url or model.base_url, lease_s)
            return held.enter_context(crew)

        yield make
