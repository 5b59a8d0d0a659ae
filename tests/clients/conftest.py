"""The two servers behind, and the proxy before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.clients.upstream import CALLING, Pair, models
from tests.clients.watching import Guarded, guarded
from tests.proxy.serving import listening
from tests.support.fixtures import StartServer
from ullage.embedded import Launch

Behind = Callable[[int], tuple[Pair, str]]


@pytest.fixture(scope="session")
def behind(llama_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Return what gives the two servers as one, of a window in tokens, with their address."""
    calling, speaking = models(tmp_path_factory.mktemp("pair"))
    started: dict[int, tuple[Pair, str]] = {}
    with ExitStack() as held:

        def start(window: int) -> tuple[Pair, str]:
            if window in started:
                return started[window]
            one = llama_server(Launch(window=window, chat_template=CALLING), calling)
            other = llama_server(Launch(window=window), speaking)
            pair = Pair(one, other, window)
            url = held.enter_context(listening(pair))  # type: ignore[arg-type]  # any ASGI app
            started[window] = pair, url
            return started[window]

        yield start


@pytest.fixture
def guard(behind: Behind) -> Iterator[Guarded]:
    """Return a new proxy before two servers with a window of 2,048 tokens."""
    with guarded(*behind(2048)) as watched:
        yield watched


@pytest.fixture
def roomy(behind: Behind) -> Iterator[Guarded]:
    """Return one before two servers with a window of 8,192: an agent's own words take half."""
    with guarded(*behind(8192)) as watched:
        yield watched
