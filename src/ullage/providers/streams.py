"""Models that are objects of the caller's: the protocol they keep to, checked once.

It calls none of them.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError
from ullage.providers.provider import Provider


class StreamProvider(Protocol):
    """A model that answers by itself, in place of a server that is called over HTTP.

    It may also have, as `Provider` has them: `dialect` (how requests and events are written, else
    Chat Completions), `base_url` (the server behind it, which is asked for its window), `options`
    (fields of every request), and `window` (tokens, where you know better).
    """

    @property
    def model(self) -> str:
        """The model's name, by which its window and its price are found."""
        ...

    def stream(self, request: Mapping[str, Any], /) -> AsyncIterator[object]:
        """Yield the pieces of an answer as they come; an async generator is the plain way.

        `request` is the body that a server of the dialect would get. A piece is a text to be
        shown, an event of the dialect (a mapping, or an SDK's object), or a `Reply`: the whole
        answer, as the last piece. What it raises ends the call. It is closed when a turn is
        interrupted.
        """
        ...


WAY: Final = "async def stream(self, request): yield ..."
"""How a model's method begins, for error texts."""


def read_provider(given: Provider | StreamProvider) -> Provider:
    """Return a provider as it is, and the record of one that is an object of the caller's.

    Raises ConfigurationError for an object that is neither, with what it lacks.
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
    """Refuse a method that cannot return an async iterator of one request."""
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
    except ValueError:  # of what is written in C nobody knows the parameters
        return


def _read(given: object, name: str, field: str, kind: type) -> Any:
    """Return an attribute that may be left out; raises ConfigurationError for a wrong one."""
    value = getattr(given, field, None)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    raise ConfigurationError(f"{name}.{field} is {value!r:.60}, not {kind.__name__}: see Provider")
