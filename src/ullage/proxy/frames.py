"""What a proxy and its workers tell each other, as frames on a pipe: a length, then a pickle.

Both ends are the same program of the same user: nobody else writes to these pipes. Frames are
tuples, which are pickled and read in half the time of frozen dataclasses. It knows no requests.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio

HEAD: Final = struct.Struct("!Q")


class WorkerJob(NamedTuple):
    """Work for a worker, done by its method `name`; it answers with `Done` of this number."""

    number: int
    name: str
    arguments: tuple[Any, ...]


class Done(NamedTuple):
    """The end of a job: its value, or what it raised."""

    number: int
    value: Any = None
    error: BaseException | None = None


class WorkerAsk(NamedTuple):
    """What a worker needs of the proxy: a method of a door. `ProxyReply` has the number."""

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
    """What a worker tells the proxy, on behalf of a job; nothing is answered."""

    job: int
    door: str
    method: str
    arguments: tuple[Any, ...]


class Beat(NamedTuple):
    """A worker lives, and gets round to its work."""


def pack(frame: Any) -> bytes:
    """Return a frame as bytes; a result that cannot be pickled becomes the error that says so."""
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
    """Return the next frame of a pipe, None at its end."""
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    data = source.read(HEAD.unpack(head)[0])
    return pickle.loads(data)  # noqa: S301 - our own parent wrote it


async def aread(source: asyncio.StreamReader) -> Any | None:
    """Do as `read`, without blocking the event loop."""
    import asyncio

    try:
        head = await source.readexactly(HEAD.size)
        data = await source.readexactly(HEAD.unpack(head)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return pickle.loads(data)  # noqa: S301 - our own child wrote it
