"""Messages between a proxy and its workers, as frames on a pipe: a length, then a pickle.

Both ends are the same program of the same user: nobody else writes to these pipes. Frames are
tuples, which pickle in half the time of frozen dataclasses. The module does not know requests.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio

HEAD: Final = struct.Struct("!Q")


class WorkerJob(NamedTuple):
    """Work for a worker's method `name`; the worker answers with `Done` of the same number."""

    number: int
    name: str
    arguments: tuple[Any, ...]


class Done(NamedTuple):
    """The end of a job: its value, or the error that it raised."""

    number: int
    value: Any = None
    error: BaseException | None = None


class WorkerAsk(NamedTuple):
    """A worker's call of a method of a door. `ProxyReply` has the same number."""

    number: int
    door: str
    method: str
    arguments: tuple[Any, ...]


class ProxyReply(NamedTuple):
    """The answer to `WorkerAsk`."""

    number: int
    value: Any = None
    error: BaseException | None = None


class Tell(NamedTuple):
    """A worker's notice to the proxy, on behalf of a job; it gets no answer."""

    job: int
    door: str
    method: str
    arguments: tuple[Any, ...]


class Beat(NamedTuple):
    """A sign that a worker lives and does its work."""


def pack(frame: Any) -> bytes:
    """Return a frame as bytes; if a result cannot be pickled, send a RuntimeError instead."""
    try:
        data = pickle.dumps(frame, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        if not isinstance(frame, Done | ProxyReply):
            raise
        told = frame.error or error
        plain = RuntimeError(f"{type(told).__name__}: {told}")
        data = pickle.dumps(type(frame)(frame.number, error=plain), pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(data)) + data


def read(source: BinaryIO) -> Any | None:
    """Return the next frame of a pipe, or None at its end."""
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    data = source.read(HEAD.unpack(head)[0])
    return pickle.loads(data)  # noqa: S301 - our own parent wrote it


async def aread(source: asyncio.StreamReader) -> Any | None:
    """Do the same as `read` without blocking the event loop."""
    import asyncio

    try:
        head = await source.readexactly(HEAD.size)
        data = await source.readexactly(HEAD.unpack(head)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return pickle.loads(data)  # noqa: S301 - our own child wrote it
