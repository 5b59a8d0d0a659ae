"""How an SDK's client sends conversations of a dialect: the description that `ullage.wrap` reads.

A client is recognised by the package and the names of its classes; no SDK is imported. This module
knows neither windows nor guards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ullage.core.messages.fields import field_of

if TYPE_CHECKING:
    from ullage.core.dialects.dialect import Fields

Path = tuple[str, ...]
"""Names of attributes starting from a client, or of fields starting from the keywords of a call."""

Answers = Literal["asked", "whole", "stream", "entered"]
"""The way a method answers: as its keyword `stream` says, whole, with a stream, or with a context
manager that sends on entering.
"""


@dataclass(frozen=True, slots=True)
class ClientMethod:
    """A method that sends a conversation.

    `awaits` says whether its call must be awaited, or None to follow the client. If the answer is
    more than a stream, `holds` is the field with the stream.
    """

    answers: Answers = "asked"
    awaits: bool | None = None
    holds: str | None = None


@dataclass(frozen=True, slots=True)
class Recipient:
    """The target of a call: the model's own name, base URL and credential, as far as known."""

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class GivenMessages:
    """The conversation in a call, as messages of the dialect.

    For a message that was converted, `origins` has the caller's originals, by the id of the
    message.
    """

    messages: Any
    origins: Mapping[int, Sequence[Any]] = field(default_factory=dict)

    def write(self, messages: Sequence[Any]) -> list[Any]:
        """Return messages with the caller's originals in place of converted ones."""
        return [own for message in messages for own in self.origins.get(id(message), (message,))]


@dataclass(frozen=True, slots=True)
class ClientForm:
    """How one SDK's client sends conversations.

    `title` is its usual name, `package` the package of its classes, `classes` their names and
    whether they are async, `modules` the names of modules that are clients themselves. `paths` lead
    to the endpoints, which have the `methods`. `locate` returns the target of a call from the
    client and the call's keywords; it raises nothing.

    `places` gives the places of a part of the conversation in a call, in order of precedence; parts
    that are not in it follow the dialect's fields. `headers` is the keyword for the headers of a
    call. `copies` are methods that return another client. `rebuilt` are attributes that hold a part
    of the bare client: their class is instantiated again, with the guarded part under a keyword.
    `read_messages` reads the forms of a conversation that the client accepts; `read_system` returns
    an operator's text as text or blocks.
    """

    title: str
    package: str
    classes: Mapping[str, bool]
    paths: tuple[Path, ...]
    methods: Mapping[str, ClientMethod]
    locate: Callable[[Any, Mapping[str, Any]], Recipient]
    places: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    headers: str | None = None
    copies: frozenset[str] = frozenset()
    rebuilt: Mapping[Path, tuple[str, Path]] = field(default_factory=dict)
    read_messages: Callable[[Any], GivenMessages] = GivenMessages
    read_system: Callable[[Any], Any] | None = None

    def is_home(self, module: str) -> bool:
        """Tell whether a module belongs to the package."""
        return module == self.package or module.startswith(f"{self.package}.")

    def find_places(self, fields: Fields) -> Mapping[str, tuple[Path, ...]]:
        """Return the places of the parts of a conversation in a call, by the dialect's fields."""
        inside = () if fields.inside is None else (fields.inside,)
        found: dict[str, tuple[Path, ...]] = {
            "messages": ((fields.messages,),),
            "tools": (("tools",),),
            "max_tokens": tuple((*inside, name) for name in fields.output),
        }
        if fields.system is not None:
            found["system"] = ((fields.system,),)
        return {**found, **self.places}


def find_text(value: Any, *path: str) -> str | None:
    """Return the text at the end of a path of attributes or fields, or None."""
    for name in path:
        value = field_of(value, name)
    return value if isinstance(value, str) and value else None


def find_url(value: Any, *path: str) -> str | None:
    """Return the URL at the end of a path; it may be an object of an HTTP client."""
    for name in path:
        value = field_of(value, name)
    return (str(value) or None) if value is not None else None
