"""Pytest fixtures with real servers; `pytest_plugins = ["tests.support.fixtures"]`.

`tiny_model` is the path of the tiny GGUF, `tiny_server` a server of it with a window of 2,048
tokens, `llama_server` a function that starts further ones. `postgres_server` is a PostgreSQL,
`postgres_database` a function that gives the URL of a new database on it. All servers are shared by
the session and stopped at its end. It knows nothing of what is tested with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from tests.support import postgres, tinymodel
from ullage.core.errors import ConfigurationError
from ullage.embedded import Launch, Server


class StartServer(Protocol):
    """Hand out the running server of `model` (None: the tiny one) for `launch` (None: as it is).

    The same arguments give the same server, so a test must not stop it. Raises what
    `Server.start` raises.
    """

    def __call__(self, launch: Launch | None = None, model: Path | None = None) -> Server:
        """Return the server, running."""
        ...


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a freshly made tiny model, trained window 131,072 tokens."""
    return tinymodel.make(tmp_path_factory.mktemp("ullage") / "tiny.gguf")


@pytest.fixture(scope="session")
def llama_server(tiny_model: Path) -> Iterator[StartServer]:
    """Return a function that gives the session's server for a `Launch`, starting it if need be."""
    servers: dict[tuple[Path, Launch], Server] = {}
    with ExitStack() as stack:

        def start(launch: Launch | None = None, model: Path | None = None) -> Server:
            wish = launch or Launch()
            if wish.threads is None:
                # The tiny model needs no more than one, and test runs share their cores.
                wish = replace(wish, threads=1)
            key = (model or tiny_model, wish)
            if key not in servers:
                servers[key] = stack.enter_context(Server(*key))
            return servers[key].start()

        yield start


@pytest.fixture(scope="session")
def tiny_server(llama_server: StartServer) -> Server:
    """Return the session's server of the tiny model: one slot, window 2,048 tokens."""
    return llama_server(Launch(window=2048))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """Return the session's PostgreSQL; skips where there is none to start."""
    pytest.importorskip("psycopg")
    try:
        installation = postgres.obtain()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with postgres.Server(installation) as running:
        yield running


@pytest.fixture(scope="session")
def postgres_database(postgres_server: postgres.Server) -> Callable[[], str]:
    """Return a function that gives the URL of a new, empty database."""
    return postgres_server.created
