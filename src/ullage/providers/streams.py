"""Models that are objects of the caller: their protocol, checked once.

It calls no model.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError
from ullage.providers.provider import Provider


class StreamProvider(Protocol):
    """A model that answers itself, instead of a server that is called over HTTP.

    It may also have these attributes of `Provider`: `dialect` (the form of requests and events, by
    default Chat Completions), `base_url` (the server that it uses, to ask for its window),
    `options` (fields of every request), and `window` (tokens, if you know better).
    """

    @property
    def model(self) -> str:
        """The model's name, used to find its window and price."""
        ...

    def stream(self, request: Mapping[str, Any], /) -> AsyncIterator[object]:
        """Yield the pieces of an answer as they arrive, usually as an async generator.

        `request` is the body that a server of the dialect would get. A piece is text to show, an
        event of the dialect (a mapping, or an SDK's object), or a `Reply`: the whole answer, as the
        last piece. An exception ends the call. The iterator is closed when a turn is interrupted.
        """
        ...


WAY: Final = "async def stream(self, request): yield ..."
"""The first line of a model's method, for error texts."""


def read_provider(given: Provider | StreamProvider) -> Provider:
    """Return a provider unchanged, or a record for an object of the caller.

    Raises ConfigurationError that names the missing parts if the object is neither.
    """
    if isinstance(given, Provider):
        return given
    name = type(given).__name__ if not isinstance(given, type) else given.__name__
    if isinstance(given, type):
        raise ConfigurationError(f"the provider is the class {name}: give an object of it")
    stream = getattr(given, "stream", None)
    if not callable(stream):
        raise ConfigurationError(
            f"the provider is {given!r:.80}: expected an ullage.Provider, or an object with a "
            f"model and {WAY}"
        )
    _check_stream(name, stream)
    model = getattr(given, "model", None)
    if not isinstance(model, str) or not model:
        raise ConfigurationError(
            f"{name}.model is {model!r:.60}: give the model's name as a text, by which its window "
            "is found"
        )
    return Provider(
        model,
        _read(given, name, "base_url", str) or "",
        _read(given, name, "dialect", str) or registry.DEFAULT,
        options=_read(given, name, "options", Mapping) or {},
        source=given,
        window=_read(given, name, "window", int),
    )


def _check_stream(name: str, stream: Any) -> None:
    """Refuse a method that cannot return an async iterator for one request."""
    if inspect.iscoroutinefunction(stream) or inspect.isgeneratorfunction(stream):
        what = "a coroutine" if inspect.iscoroutinefunction(stream) else "a blocking iterator"
        raise ConfigurationError(
            f"{name}.stream returns {what}: it returns an async iterator, so write {WAY}"
        )
    try:
        inspect.signature(stream).bind({})
    except TypeError as error:
        raise ConfigurationError(
            f"{name}.stream takes no single request ({error}): write {WAY}"
        ) from error
    except ValueError:  # the parameters of a C function may be unknown
        return


def _read(given: object, name: str, field: str, kind: type) -> Any:
    """Return an optional attribute; raises ConfigurationError for one of the wrong type."""
    value = getattr(given, field, None)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    raise ConfigurationError(f"{name}.{field} is {value!r:.60}, not {kind.__name__}: see Provider")
