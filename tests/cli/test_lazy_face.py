"""The pages of a proxy are loaded once, whoever asks first and whatever becomes of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from ullage.cli import lazy_face
from ullage.cli.lazy_face import LazyFace


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that runs in an event loop."""

    @wraps(test)
    def run(*arguments: Any, **more: Any) -> None:
        asyncio.run(test(*arguments, **more))

    return run


class Pages:
    """Stands for pages: counts what is done with them."""

    def __init__(self) -> None:
        self.served = self.closed = self.ended = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.served += 1

    def end_streams(self) -> None:
        self.ended += 1

    def renew(self) -> None:
        """Has no viewers."""

    async def aclose(self) -> None:
        self.closed += 1


class Loading:
    """Makes pages once it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.made: list[Pages] = []
        self.error: Exception | None = None

    def __call__(self, _: Any) -> Any:
        assert self.go.wait(20)
        if self.error is not None:
            raise self.error
        self.made.append(Pages())
        return self.made[-1]


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Loading:
    made = Loading()
    monkeypatch.setattr(lazy_face, "_make_pages", made)
    return made


def make_face() -> Any:
    app: Any = object()
    return LazyFace(app)


@in_loop
async def test_many_that_ask_first_load_the_pages_once(loading: Loading) -> None:
    face = make_face()
    asked = [asyncio.create_task(face({}, None, None)) for _ in range(20)]
    loading.go.set()
    await asyncio.gather(*asked)
    assert [pages.served for pages in loading.made] == [20]


@in_loop
async def test_who_asks_first_and_leaves_does_not_have_them_loaded_twice(loading: Loading) -> None:
    face = make_face()
    first = asyncio.create_task(face({}, None, None))
    await asyncio.sleep(0.01)
    first.cancel()
    second = asyncio.create_task(face({}, None, None))
    loading.go.set()
    await second
    assert [pages.served for pages in loading.made] == [1]


@in_loop
async def test_pages_that_are_loaded_while_the_proxy_ends_are_closed(loading: Loading) -> None:
    face = make_face()
    first = asyncio.create_task(face({}, None, None))
    await asyncio.sleep(0.01)
    face.end_streams()
    ending = asyncio.create_task(face.aclose())
    loading.go.set()
    await asyncio.gather(first, ending)
    (pages,) = loading.made
    assert (pages.ended, pages.closed) == (1, 1)


@in_loop
async def test_what_cannot_be_loaded_is_tried_again(loading: Loading) -> None:
    face = make_face()
    loading.go.set()
    loading.error = OSError("no file")
    with pytest.raises(OSError, match="no file"):
        await face({}, None, None)
    loading.error = None
    await face({}, None, None)
    face.renew()
    assert len(loading.made) == 1


@in_loop
async def test_pages_that_nobody_asked_for_need_no_end() -> None:
    face = make_face()
    face.renew()
    await face.aclose()
    assert face.is_page("/ullage/conversations")
    assert not face.is_page("/v1/chat/completions")
