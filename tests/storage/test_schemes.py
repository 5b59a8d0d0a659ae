"""Stores that others bring: registered schemes, entry points, and what is checked of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ullage
from ullage.config.serving import Serve, Upstream
from ullage.core.errors import ConfigurationError
from ullage.proxy.app import App
from ullage.storage import MemoryStore, Store, StoreLimits, check_log, check_store, open_store
from ullage.storage.schemes import StoreSchemes


class Given:
    """What a factory was called with."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, StoreLimits]] = []

    def __call__(
        self, url: str, *, create: bool, limits: StoreLimits, now: Callable[[], float]
    ) -> Store:
        self.seen.append((url, create, limits))
        return MemoryStore(limits, now=now)


def test_a_registered_scheme_opens_its_store() -> None:
    given, limits = Given(), StoreLimits(most=3)
    ullage.register_store("x-test", given)
    store = open_store("x-test://host/1", create=False, limits=limits)
    assert isinstance(store, MemoryStore)
    assert given.seen == [("x-test://host/1", False, limits)]


def test_an_unknown_scheme_is_refused_with_the_one_that_it_may_have_meant() -> None:
    ullage.register_store("x-redis", Given())
    with pytest.raises(ConfigurationError, match=r"names no store.*did you mean 'x-redis'\?"):
        open_store("x-rediss://host/1")
    with pytest.raises(ConfigurationError, match=r"did you mean 'sqlite'\?"):
        open_store("sqlit:file.db")


@pytest.mark.parametrize("scheme", ["sqlite", "memory", "", "A", "a b"])
def test_a_scheme_that_cannot_be_is_refused(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the scheme of a store"):
        ullage.register_store(scheme, Given())


def test_a_factory_is_a_function() -> None:
    factory: Any = "redis"
    with pytest.raises(ConfigurationError, match="the factory of x-none is 'redis'"):
        ullage.register_store("x-none", factory)


def test_a_package_names_its_factory_in_its_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "brought-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ullage.stores]\nx-brought = brought:opened\n")
    (tmp_path / "brought.py").write_text(
        "from ullage.storage import MemoryStore\n"
        "def opened(url, *, create, limits, now):\n    return MemoryStore(limits, now=now)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(open_store("x-brought:1"), MemoryStore)
    assert StoreSchemes().suggest("x-brouht") == "did you mean 'x-brought'?"


def lacking(part: str, method: str) -> Any:
    """Return a store one of whose parts lacks a method."""
    memory = MemoryStore()
    parts = {name: getattr(memory, name) for name in ("checkpoints", "conversations", "originals")}
    names = [name for name in dir(parts[part]) if name[0] != "_" and name != method]
    parts[part] = SimpleNamespace(**{name: getattr(parts[part], name) for name in names})
    return SimpleNamespace(url="x:", purge=memory.purge, close=memory.close, **parts)


@pytest.mark.parametrize(
    ("part", "method", "said"),
    [
        (
            "checkpoints",
            "load",
            r"lacks checkpoints.load\(scope: str, prefixes: Sequence\[str\]\) -> Checkpoint",
        ),
        ("conversations", "save", r"conversations.save\(conversation: Conversation\) -> None"),
        ("originals", "aread", r"lacks originals.aread\(reference: str\) -> str \| None"),
    ],
)
def test_a_store_that_lacks_a_method_is_refused_with_its_signature(
    part: str, method: str, said: str
) -> None:
    store = lacking(part, method)
    with pytest.raises(ConfigurationError, match=said):
        ullage.Guard("m", store=store)
    with pytest.raises(ConfigurationError, match=said):
        App(Serve((Upstream("u", "http://127.0.0.1:9"),)), store=store)
    ullage.register_store("x-lacking", lambda url, **how: store)
    with pytest.raises(ConfigurationError, match=said):
        open_store("x-lacking:")


def test_a_store_without_a_part_or_a_name_is_refused() -> None:
    memory: Any = MemoryStore()
    some: Any = SimpleNamespace(checkpoints=memory.checkpoints)
    with pytest.raises(ConfigurationError, match="lacks conversations, with load, save"):
        check_store(some)
    parts = {n: getattr(memory, n) for n in ("checkpoints", "conversations", "originals")}
    nameless: Any = SimpleNamespace(purge=memory.purge, close=memory.close, **parts)
    with pytest.raises(ConfigurationError, match="lacks url, a str"):
        check_store(nameless)
    assert check_store(None) is None
    assert check_store(memory) is memory


def test_a_log_that_lacks_a_method_is_refused_with_its_signature() -> None:
    log: Any = SimpleNamespace(url="x:", create=print)
    with pytest.raises(ConfigurationError, match=r"lacks sessions\(\) -> list\[Head\]"):
        check_log(log)
    with pytest.raises(ConfigurationError, match="lacks sessions"):
        ullage.Session(log, "s")
