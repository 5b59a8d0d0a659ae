"""How the client of an SDK sends conversations of a dialect: what `ullage.wrap` reads of it.

A client is known by the package and the names of its classes; no SDK is imported. It knows neither
windows nor guards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ullage.core.messages.fields import field_of

if TYPE_CHECKING:
    from ullage.core.dialects.dialect import Fields

Path = tuple[str, ...]
"""Names of attributes from a client on, or of fields from the keywords of a call on."""

Answers = Literal["asked", "whole", "stream", "entered"]
"""How a method answers: as its keyword `stream` says, whole, by a stream, or by a context manager
that sends on entering."""


@dataclass(frozen=True, slots=True)
class ClientMethod:
    """A method that sends a conversation.

    `awaits` says whether its call must be awaited, None as its client's. `holds` is the field of
    the answer that has the stream, where the answer is more than that.
    """

    answers: Answers = "asked"
    awaits: bool | None = None
    holds: str | None = None


@dataclass(frozen=True, slots=True)
class Recipient:
    """Whom a call asks: the model's own name, the base URL and the credential, as far as known."""

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class GivenMessages:
    """What a call gives as its conversation, as messages of the dialect.

    `origins` has what the caller gave for a message that was made of it, by the id of the message.
    """

    messages: Any
    origins: Mapping[int, Sequence[Any]] = field(default_factory=dict)

    def write(self, messages: Sequence[Any]) -> list[Any]:
        """Return messages with what the caller gave in the place of what was made of it."""
        return [own for message in messages for own in self.origins.get(id(message), (message,))]


@dataclass(frozen=True, slots=True)
class ClientForm:
    """How one SDK's client sends conversations.

    `title` is how people call it, `package` where its classes are, `classes` their names and
    whether they await, `modules` the names of modules that are clients by themselves. `paths` lead
    to the endpoints, which have the `methods`. `locate` returns whom a call asks, by the client
    and the call's keywords; it raises nothing.

    `places` has, for a part of the conversation, where it stands in a call, the place that wins
    first; without it the dialect's fields tell. `headers` is the keyword for headers of a call.
    `copies` are methods that return another client. `rebuilt` are attributes that hold a part
    of the bare client: the class is made anew, with the guarded part under a keyword.
    `read_messages` reads what may stand for a list of messages; `read_system` returns an operator's
    text as text or blocks.
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
        """Return where the parts of a conversation stand in a call, by the dialect's fields."""
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
    """Return the text at the end of a path of attributes or fields, None where there is none."""
    for name in path:
        value = field_of(value, name)
    return value if isinstance(value, str) and value else None


def find_url(value: Any, *path: str) -> str | None:
    """Return the URL at the end of a path, which may be an object of an HTTP client's."""
    for name in path:
        value = field_of(value, name)
    return (str(value) or None) if value is not None else None
