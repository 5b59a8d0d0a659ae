"""Fixtures for the whole suite."""

import asyncio
import gc
import os
import shutil
import signal
import ssl
import sys
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import httpcore2
import platformdirs
import pytest
from hypothesis import settings

from tools.profiles import SHORT
from ullage import runtime

settings.load_profile(SHORT)  # --hypothesis-profile names another

# The suite starts `ullage` hundreds of times. Where the environment forbids bytecode, each start
# compiles every module again, and each worker rewrites the asserts of every file of tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

os.environ["ULLAGE_ALLOW_ROOT"] = "1"  # who runs the suite may be root, as in most containers

PLACES: Final = (
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "ULLAGE_STORE"),
    *("CODEX_HOME", "CLAUDE_CONFIG_DIR", "OPENCODE_DB"),
)
"""Variables that name folders and stores of whoever runs the tests."""

pytest_plugins = ["tests.support.fixtures"]


HEAVIEST: Final = (
    *("proxy/test_unknown_servers", "proxy/test_workers", "cli/screen/test_screen", "test_matrix"),
    *("workers/test_takeover", "cli/test_run_live", "proxy/test_recall_tools", "cli/test_asking"),
    *("cli/test_statusline", "cli/test_progress", "tools/test_contracts", "replay/test_corpus"),
    *("storage/test_store", "proxy/test_replicas", "test_tutorial", "test_install"),
    *("proxy/test_security", "proxy/test_faults", "test_typing", "test_reasoning", "test_linear"),
    *("cli/test_serve_log", "test_gateways", "storage/test_log_writer", "storage/test_log"),
    *("guard/test_embedded_summary", "agent/test_killed", "cli/test_log_secrecy"),
    *("crash/test_refusals", "crash/test_torture", "agent/test_two_workers", "crash/test_kill"),
)
"""The files that take longest. They come first, so that two workers end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the heaviest files first."""
    here = Path(__file__).parent
    ranks = {here / f"{name}.py": rank for rank, name in enumerate(HEAVIEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(HEAVIEST)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: half of the time went there, among what stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep every test off the home, the settings and the cache of whoever runs the tests.

    A home may hold a store of sessions, and transcripts of other programs. What was fetched once,
    a browser and a model, stays where it is.
    """
    folder = tmp_path_factory.mktemp("cache")
    settings = tmp_path_factory.mktemp("config") / "config.toml"
    settings.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        for name in PLACES:
            patch.delenv(name, raising=False)
        patch.setenv("XDG_CACHE_HOME", str(platformdirs.user_cache_path()))
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("ULLAGE_CONFIG", str(settings))
        patch.setenv("ULLAGE_CACHE_DIR", str(folder))
        patch.setenv("COLUMNS", "80")  # what is drawn depends on the width of nobody's terminal
        yield folder


@pytest.fixture(scope="session", autouse=True)
def roots_read_once() -> Iterator[None]:
    """Read the root certificates once: clients of SDKs read them anew each, 25 ms of computing.

    Who names others by the environment gets a context of its own.
    """
    make = httpcore2.default_ssl_context
    made: dict[tuple[object, ...], ssl.SSLContext] = {}

    def get(**how: Any) -> ssl.SSLContext:
        named = [os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
        key = (*how.items(), *named)
        if key not in made:
            made[key] = make(**how)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", get)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_loop_leaves_connections() -> Iterator[None]:
    """Fail whoever ends an event loop with a connection open.

    The collector of garbage would find it later, by chance and in another test.
    """
    close = BaseSelectorEventLoop.close

    def check_and_close(loop: BaseSelectorEventLoop) -> None:
        known: list[asyncio.BaseTransport] = [*getattr(loop, "_transports", {}).values()]
        left = [transport for transport in known if _is_open(transport)]
        close(loop)
        assert not left, f"an event loop has ended with open connections: {left}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseSelectorEventLoop, "close", check_and_close)
        yield


def _is_open(transport: asyncio.BaseTransport) -> bool:
    socket = transport.get_extra_info("socket")
    return socket is not None and socket.fileno() >= 0


@pytest.fixture(autouse=True)
def nothing_learned(nobodys_settings: Path) -> None:
    """Begin every test without what an earlier one taught this process and its cache.

    Lessons are kept by address and model. Among thousands of servers the system gives some port
    twice, and the model is mostly called "model": a test would meet the limits of another.
    """
    for kept in nobodys_settings.glob("*.json"):
        kept.unlink()
    runtime._default.renew()


@pytest.fixture(scope="session", autouse=True)
def ordinary_interrupts() -> None:
    """Let SIGINT raise KeyboardInterrupt, also where it was ignored when the suite was started.

    A shell starts its background jobs so; tests that interrupt themselves would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def needs_git() -> None:
    """Skip a test where there is Python and make, and no git."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
