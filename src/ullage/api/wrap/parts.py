"""The parts of a wrapped client: guarded methods, further wrapped parts, and the client's own rest.

This module decides which calls go through a guard. The guard decides how they are sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Self, SupportsIndex

from ullage.api.wrap.methods import RAW, STREAMED, GuardedMethod
from ullage.api.wrap.sending import CallSender, bind, find_place
from ullage.api.wrap.shared import SharedGuards
from ullage.core.dialects.client import Path
from ullage.guard.call import is_given
from ullage.guard.guard import Guard

KEPT: Final = "the history of this request is kept by the server"
UNREAD: Final = (
    "the arguments of this request have no names that can be read (give them as keywords)"
)


@dataclass(frozen=True, slots=True)
class _Sending:
    """One guarded call: the guard, and the callable that sends what the guard returns."""

    guard: Guard
    send: CallSender

    @property
    def messages(self) -> Any:
        """The conversation, as the guard gets it."""
        return self.send.parts["messages"]

    @property
    def options(self) -> Mapping[str, Any]:
        """The other arguments that the guard gets."""
        return {name: value for name, value in self.send.parts.items() if name != "messages"}


class WrappedPart:
    """A part of a wrapped client. `isinstance` sees the class of the wrapped object."""

    def __init__(self, target: Any, path: Path, shared: SharedGuards, client: Any) -> None:
        put = object.__setattr__
        put(self, "_ullage_target", target)
        put(self, "_ullage_path", path)
        put(self, "_ullage_shared", shared)
        put(self, "_ullage_client", client)

    @property  # type: ignore[misc]  # read by isinstance; the type itself stays ours
    def __class__(self) -> type:
        return type(self._ullage_target)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_ullage_"):  # a copy under construction has no such attribute yet
            raise AttributeError(name)
        value = getattr(self._ullage_target, name)
        path, shared = (*self._ullage_path, name), self._ullage_shared
        how = shared.find(self._ullage_path, name)
        if how is not None:
            return _make_method(self, value, how)
        if not self._ullage_path and name in shared.copies:
            return lambda *args, **options: self._ullage_again(value(*args, **options))
        if path in shared.rebuilt:
            return self._ullage_rebuild(value, *shared.rebuilt[path])
        return make_part(value, path, shared, self._ullage_client) if shared.leads(path) else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ullage_target, name, value)

    def __dir__(self) -> list[str]:
        return dir(self._ullage_target)

    def __copy__(self) -> Self:
        return type(self)(
            self._ullage_target, self._ullage_path, self._ullage_shared, self._ullage_client
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a wrapped client belongs to its process and can be neither pickled nor deep-copied: "
            "make and wrap one in the other process"
        )

    def __repr__(self) -> str:
        return f"<ullage.wrap of {self._ullage_target!r}>"

    def _ullage_again(self, client: Any) -> Any:
        """Return another client, wrapped as this one is."""
        return make_part(client, (), self._ullage_shared, client)

    def _ullage_rebuild(self, value: Any, keyword: str, path: Path) -> Any:
        """Return an object that holds a part of the client, with the guarded part in it."""
        part = self._ullage_again(self._ullage_client)
        for name in path:
            part = getattr(part, name)
        return type(value)(**{keyword: part})

    def _ullage_sending(
        self, method: Callable[..., Any], how: GuardedMethod, given: dict[str, Any] | None
    ) -> _Sending | None:
        """Return a call for a guard, or None if the call carries no history of its own."""
        shared, client = self._ullage_shared, self._ullage_client
        if given is None:
            shared.notice(shared.guard(client, how, {}), UNREAD)
            return None
        stored = how.dialect.fields.stored
        if any(is_given(given.get(name)) for name in stored):
            shared.notice(shared.guard(client, how, given), KEPT)
            return None
        if find_place(how.places["messages"], given) is None:
            return None
        return _Sending(shared.guard(client, how, given), CallSender(method, how, given, client))


class _Blocking(WrappedPart):
    """A part with the `with` block of the wrapped object."""

    def __enter__(self) -> Self:
        self._ullage_target.__enter__()
        return self

    def __exit__(self, *raised: object) -> Any:
        return self._ullage_target.__exit__(*raised)


class _Awaiting(WrappedPart):
    """A part with the `async with` block of the wrapped object."""

    async def __aenter__(self) -> Self:
        await self._ullage_target.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> Any:
        return await self._ullage_target.__aexit__(*raised)


class _Both(_Blocking, _Awaiting):
    """A part with both kinds of blocks."""


def make_part(target: Any, path: Path, shared: SharedGuards, client: Any) -> WrappedPart:
    """Return a wrapper for a part of a client, with the same context manager methods."""
    kind = type(target)
    blocks, awaits = hasattr(kind, "__enter__"), hasattr(kind, "__aenter__")
    made = (_Both if awaits else _Blocking) if blocks else (_Awaiting if awaits else WrappedPart)
    return made(target, path, shared, client)


def _make_method(
    part: WrappedPart, method: Callable[..., Any], how: GuardedMethod
) -> Callable[..., Any]:
    """Return the guarded version of an SDK method."""
    path, answers = part._ullage_path, how.method.answers  # noqa: SLF001 - one room
    watched = RAW not in path and STREAMED not in path
    if STREAMED in path or answers == "entered":
        return _make_manager(part, method, how, watched=watched)

    @functools.wraps(method)
    def call(*args: Any, **given: Any) -> Any:
        sending = part._ullage_sending(method, how, bind(method, args, given))  # noqa: SLF001
        if sending is None:
            return method(*args, **given)
        guard, wanted = sending.guard, is_given(given.get("stream")) and given["stream"]
        streams = watched and (answers == "stream" or (answers == "asked" and wanted))
        sends = (guard.astream, guard.acall) if how.awaits else (guard.stream, guard.call)
        made = sends[0 if streams else 1](sending.send, sending.messages, **sending.options)
        if not streams or how.method.holds is None:
            return made
        return _hand_out(sending.send, made) if how.awaits else sending.send.hand_out(made)

    @functools.wraps(method)
    async def acall(*args: Any, **given: Any) -> Any:
        return await call(*args, **given)

    return acall if how.awaits else call


async def _hand_out(send: CallSender, stream: Any) -> Any:
    return send.hand_out(await stream)


def _make_manager(
    part: WrappedPart, method: Callable[..., Any], how: GuardedMethod, *, watched: bool
) -> Callable[..., Any]:
    """Return the guarded version of a method that returns a context manager."""
    entering = _AsyncEntering if how.awaits else _Entering

    @functools.wraps(method)
    def manage(*args: Any, **given: Any) -> Any:
        sending = part._ullage_sending(method, how, bind(method, args, given))  # noqa: SLF001
        return method(*args, **given) if sending is None else entering(sending, watched)

    return manage


class _Entering:
    """An SDK's context manager that sends on entering: each attempt enters a new one."""

    def __init__(self, sending: _Sending, watched: bool) -> None:  # noqa: FBT001 - one caller
        self._sending = sending
        self._watched = watched
        self._entered: Any = None

    def __enter__(self) -> Any:
        def send(**view: Any) -> Any:
            self._entered = self._sending.send(**view)
            return self._entered.__enter__()

        made = self._sending
        guarded = made.guard.stream if self._watched else made.guard.call
        return guarded(send, made.messages, **made.options)

    def __exit__(self, *raised: object) -> Any:
        return self._entered.__exit__(*raised)


class _AsyncEntering:
    """The async version of `_Entering`."""

    def __init__(self, sending: _Sending, watched: bool) -> None:  # noqa: FBT001 - one caller
        self._sending = sending
        self._watched = watched
        self._entered: Any = None

    async def __aenter__(self) -> Any:
        async def send(**view: Any) -> Any:
            self._entered = self._sending.send(**view)
            return await self._entered.__aenter__()

        made = self._sending
        guarded = made.guard.astream if self._watched else made.guard.acall
        return await guarded(send, made.messages, **made.options)

    async def __aexit__(self, *raised: object) -> Any:
        return await self._entered.__aexit__(*raised)
