"""Work that is begun where it is asked for: what never waits needs no timer and no task."""

from __future__ import annotations

import asyncio
import time

import pytest

from ullage.begun import Begun, wait_within


async def answer(waits: int, result: object = "done") -> object:
    for _ in range(waits):
        await asyncio.sleep(0)
    return result


def test_work_that_never_waits_is_done_once_it_is_made() -> None:
    async def run() -> object:
        begun = Begun(answer(0))
        assert (begun.is_done, begun.result) == (True, "done")
        return await begun

    assert asyncio.run(run()) == "done"


@pytest.mark.parametrize("result", ["done", (1, 2), None, ValueError("a value")])
def test_work_that_waits_goes_on_to_its_result(result: object) -> None:
    async def run() -> object:
        begun = Begun(answer(3, result))
        assert not begun.is_done
        return await begun

    assert asyncio.run(run()) is result


def test_what_is_raised_before_the_first_wait_is_raised_at_once() -> None:
    async def fail() -> None:
        raise KeyError("early")

    with pytest.raises(KeyError, match="early"):
        Begun(fail())


def test_an_error_reaches_the_work_where_it_waits() -> None:
    async def hold(future: asyncio.Future[None]) -> str:
        try:
            await future
        except ValueError:
            await asyncio.sleep(0)
            return "mended"
        return "never"

    async def run() -> str:
        future = asyncio.get_running_loop().create_future()
        begun = Begun(hold(future))
        future.set_exception(ValueError("late"))
        result: str = await begun
        return result

    assert asyncio.run(run()) == "mended"


def test_work_that_waits_too_long_is_cancelled() -> None:
    ended = []

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(TimeoutError):
        asyncio.run(wait_within(0.01, hang()))
    assert ended == [True]


@pytest.mark.parametrize("seconds", [0, 10, None])
def test_no_time_is_too_short_for_what_never_waits(seconds: float | None) -> None:
    assert asyncio.run(wait_within(seconds, answer(0))) == "done"


def test_work_that_waits_for_less_than_its_time_has_its_result() -> None:
    assert asyncio.run(wait_within(10, answer(2))) == "done"


def test_a_cancelled_wait_cancels_the_work() -> None:
    async def run() -> bool:
        task = asyncio.ensure_future(wait_within(60, answer(1_000_000)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert asyncio.run(run())


def test_a_wait_that_is_closed_closes_the_work() -> None:
    work = answer(1)

    async def run() -> None:
        begun = Begun(work)
        begun.close()

    asyncio.run(run())
    with pytest.raises(RuntimeError, match="already"):
        work.send(None)


def test_what_is_done_before_the_first_wait_counts() -> None:
    async def work_and_wait() -> None:
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
        await asyncio.sleep(60)

    async def run() -> float:
        before = time.monotonic()
        with pytest.raises(TimeoutError):
            await wait_within(0.01, work_and_wait())
        return time.monotonic() - before

    assert asyncio.run(run()) < 30
