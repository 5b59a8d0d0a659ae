"""Send a prepared request through a caller's function, and retry once if that may help.

This module calls, streams and retries over a `Port`. The port chooses the request to send and
decides about the retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ullage.guard.call import GuardedCall, refuse_awaitable, refuse_stream
from ullage.guard.view import View
from ullage.sdk.errors import read_trouble
from ullage.sdk.streams import (
    Opened,
    aclose,
    aopen_stream,
    awatch_stream,
    close,
    open_stream,
    watch_stream,
)

if TYPE_CHECKING:
    from ullage.core.guard.request import Request
    from ullage.core.messages.transcript import DialectName
    from ullage.guard.port import Port
    from ullage.sdk.errors import Trouble

Answer = TypeVar("Answer")


def send_call(port: Port, call: GuardedCall, request: Request, dialect: DialectName) -> Any:
    """Return the whole answer of a function after learning from it."""
    refuse_stream(call, "call", "stream", wanted=False)
    view, response = attempt(
        port, port.prepare(request, dialect), lambda v: refuse_awaitable(call.send(v.kwargs))
    )
    view.observe(response)
    return response


async def asend_call(port: Port, call: GuardedCall, request: Request, dialect: DialectName) -> Any:
    """Do as `send_call` with an async function."""
    refuse_stream(call, "acall", "astream", wanted=False)
    prepared = await port.aprepare(request, dialect)
    view, response = await aattempt(port, prepared, lambda v: call.asend(v.kwargs))
    await view.aobserve(response)
    return response


def send_stream(port: Port, call: GuardedCall, request: Request, dialect: DialectName) -> Any:
    """Return the watched stream of a function; its first events have been read."""
    refuse_stream(call, "stream", "call", wanted=True)
    asking = call.streaming()
    view, made = attempt(
        port,
        port.prepare(request, dialect),
        lambda v: open_stream(call.send({**v.kwargs, **asking})),
    )
    return watch_stream(made, lambda tracker: port.settle_stream(view, tracker))


async def asend_stream(
    port: Port, call: GuardedCall, request: Request, dialect: DialectName
) -> Any:
    """Do as `send_stream` with an async function, or one that returns an async iterator."""
    refuse_stream(call, "astream", "acall", wanted=True)
    asking = call.streaming()

    async def send(view: View) -> Opened:
        return await aopen_stream(await call.asend({**view.kwargs, **asking}))

    view, made = await aattempt(port, await port.aprepare(request, dialect), send)
    return awatch_stream(made, lambda tracker: port.asettle_stream(view, tracker))


def attempt(port: Port, view: View, send: Callable[[View], Answer]) -> tuple[View, Answer]:
    """Send a request, with one retry if the port offers one; return the sent view and the answer.

    The port is told of a second failure.
    """
    try:
        answer = send(view)
    except Exception as error:
        second = port.retry(view, read_trouble(error))
        if second is None:
            raise
    else:
        met = _find_trouble(answer)
        second = None if met is None else port.retry(view, met)
        if second is None:
            return view, answer
        close(getattr(answer, "stream", None))
    try:
        answer = send(second)
    except Exception as error:
        port.give_up(second, view, read_trouble(error))
        raise
    found = _find_trouble(answer)
    if found is not None:
        port.give_up(second, view, found)
    return second, answer


async def aattempt(
    port: Port, view: View, send: Callable[[View], Awaitable[Answer]]
) -> tuple[View, Answer]:
    """Do as `attempt` with an async `send`."""
    try:
        answer = await send(view)
    except Exception as error:
        second = await port.aretry(view, read_trouble(error))
        if second is None:
            raise
    else:
        met = _find_trouble(answer)
        second = None if met is None else await port.aretry(view, met)
        if second is None:
            return view, answer
        await aclose(getattr(answer, "stream", None))
    return second, await asend_second(port, view, second, send)


async def asend_second(
    port: Port, first: View, second: View, send: Callable[[View], Awaitable[Answer]]
) -> Answer:
    """Send the port's retry after a failure of `first`; tell the port if it fails too."""
    try:
        answer = await send(second)
    except Exception as error:
        await port.agive_up(second, first, read_trouble(error))
        raise
    found = _find_trouble(answer)
    if found is not None:
        await port.agive_up(second, first, found)
    return answer


def _find_trouble(answer: Any) -> Trouble | None:
    return answer.trouble if isinstance(answer, Opened) else None
