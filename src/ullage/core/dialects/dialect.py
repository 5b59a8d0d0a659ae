"""The description of a dialect: one frozen value. Code outside this folder reads only this.

Each folder next to this file has one as `DIALECT`. A value is cheap to load: the codec, the readers
of answers and the renderer are loaded on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import re
    from collections.abc import MutableMapping

    from ullage.core.dialects.client import ClientForm
    from ullage.core.dialects.form import Form
    from ullage.core.dialects.framing import Framing
    from ullage.core.dialects.reply import Assembly, Watch
    from ullage.core.dialects.rounds import AddedTools
    from ullage.core.dialects.server_edits import NativeCompaction, ServerEdits
    from ullage.core.dialects.usage import Usage
    from ullage.core.messages.readings import Readings
    from ullage.core.messages.transcript import Codec, Message

    MakeCodec = Callable[[MutableMapping[Any, Message] | None, Readings | None], Codec]

Auth = Literal["bearer", "x-api-key", "x-goog-api-key"]


def _nothing(_: str) -> Mapping[str, Any]:
    return {}


def _no_edits(_: Mapping[str, Any]) -> ServerEdits | None:
    return None


def _no_cache_key(_: str) -> str | None:
    return None


def _models(base_url: str) -> str:
    return f"{base_url.rstrip('/')}/models"


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a request's parts.

    `messages` and `system` are names of fields; without `system` the operator's text is among the
    messages. `output` are the fields that may limit an answer, in order of precedence, and `limit`
    is the one that a guard writes; both are in the field `inside`, if that is set. `stored` are
    fields that name a history kept by the server. `takes_text` says that a text may replace a list
    with one user message, `takes_blocks` that `system` may be a list of blocks. `streams_unasked`
    says that an answer is a stream unless the request says otherwise, `lines` that a stream
    consists of lines of JSON. A `single` request is one prompt: it is measured, and nothing in it
    can be left out. `leaves_out` are fields of ours that the endpoint does not take (`model`,
    `stream`), because its URL has them. If the system prompt is an object, `system_parts` is the
    field with its blocks. `spellings` are second names of fields that the endpoint accepts as well.
    """

    messages: str = "messages"
    system: str | None = None
    output: tuple[str, ...] = ("max_tokens",)
    limit: str = "max_tokens"
    inside: str | None = None
    stored: tuple[str, ...] = ()
    takes_text: bool = False
    takes_blocks: bool = False
    streams_unasked: bool = False
    lines: bool = False
    single: bool = False
    leaves_out: frozenset[str] = frozenset()
    system_parts: str | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> Mapping[str, str]:
        """The dialect's names for `messages`, `system` and `max_tokens`."""
        named = {"messages": self.messages, "max_tokens": self.limit}
        return named | ({"system": self.system} if self.system else {})

    def spell(self, given: Mapping[str, Any]) -> Fields:
        """Return the fields with the names that a request uses."""
        if not self.spellings:
            return self
        other = {own: name for own, name in self.spellings.items() if name in given}
        inner = given.get(other.get(self.inside or "", self.inside or ""))
        held = inner if isinstance(inner, Mapping) else {}
        other |= {own: name for own, name in self.spellings.items() if name in held}
        if not other:
            return self
        return replace(
            self,
            system=None if self.system is None else other.get(self.system, self.system),
            inside=None if self.inside is None else other.get(self.inside, self.inside),
            output=tuple(other.get(name, name) for name in self.output),
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """The marks that identify a request: only those that no other dialect has.

    `roles` and `keys` are of a message, `parts` are types of its content parts, `part_keys` are
    fields of a part without a type. `items` says that a message may have a type and no role,
    `typed` that a message of type `message` has parts of type `text`. The functions check what no
    table can. `keywords` are parameters that only this dialect's clients take, `parameters` those
    that together identify such a client's function.
    """

    roles: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()
    parts: frozenset[str] = frozenset()
    part_keys: frozenset[str] = frozenset()
    items: bool = False
    typed: bool = False
    is_message: Callable[[Any], bool] | None = None
    is_part: Callable[[Any], bool] | None = None
    is_tool: Callable[[Any], bool] | None = None
    keywords: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a server is called in this dialect.

    `address` returns the URL for a base URL and a model. `defaults` returns default fields of a
    call, by base URL. `trailing` says that usage comes after the end of a stream. `home` is the
    host of the provider, and the environment variable where its own client looks for a key.
    `counts` is the path where llama.cpp's server counts a request. `listing` returns the URL that
    lists a server's models. `listed` names the field of the list in the response, and the field of
    an entry's id. `key_in_query` says that `?key=` may carry the key. `cache_key` returns the field
    that marks requests with a shared cached prefix, by base URL.
    """

    address: Callable[[str, str], str]
    auth: Auth = "bearer"
    headers: tuple[tuple[str, str], ...] = ()
    defaults: Callable[[str], Mapping[str, Any]] = _nothing
    longest_answer: int | None = None
    trailing: bool = False
    home: tuple[str, str] | None = None
    counts: str | None = None
    key_in_query: bool = False
    listing: Callable[[str], str] = _models
    listed: tuple[str, str] = ("data", "id")
    cache_key: Callable[[str], str | None] = _no_cache_key


@dataclass(frozen=True, slots=True)
class Errors:
    """How clients of the dialect read errors; each function returns a body as plain JSON data.

    `report` takes a status, a code for programs and a text for people. `too_large` takes the tokens
    of a prompt and the limit, and is sent with status 400. `break_off` returns the bytes that end a
    stream early, from a text and the last bytes that were sent.
    """

    report: Callable[[int, str, str], Mapping[str, Any]]
    too_large: Callable[[int, int], Mapping[str, Any]]
    break_off: Callable[[str, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Address:
    """A path that names the model, in the group `model` of its shape.

    Without `fields` the body is checked and forwarded. `streams` says that the answer is a stream.
    """

    shape: re.Pattern[str]
    fields: Fields | None = None
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Routes:
    """The paths of the dialect in a proxy.

    `guarded` carry a conversation; `checked` are forwarded with a checked body; `plain` are
    forwarded unchanged, by methods and pattern; `addressed` name the model. Below `prefix`, errors
    have the form of this dialect.
    """

    guarded: Mapping[str, Fields] = field(default_factory=dict)
    checked: frozenset[str] = frozenset()
    addressed: Sequence[Address] = ()
    plain: Sequence[tuple[frozenset[str], re.Pattern[str]]] = ()
    prefix: str = "\0"


@dataclass(frozen=True, slots=True)
class Options:
    """A request's options for the server's own window, if the dialect has a field for it.

    `window` returns the window that a request will get, from its fields and the operator's
    `num_ctx`. `write` returns the new value of the field `inside` for that window and a lowered
    limit of the answer, or None if it stays. `read_single` returns the prompt of a request with one
    prompt: messages, and tokens that come with them.
    """

    window: Callable[[Mapping[str, Any], int | None], int | None]
    write: Callable[[Mapping[str, Any], int | None, int | None], Mapping[str, Any] | None]
    read_single: Callable[[Mapping[str, Any]], tuple[Sequence[Mapping[str, Any]], int]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Everything that the rest of the package reads of a dialect.

    `name` is that of its folder, `title` its usual name, `short` the name for files of such
    requests. `telling` matches the bytes of an event with an end, a report or an error; text may
    match too. `reports` are keys of a usage report that identify the dialect, the lowest
    `report_rank` first. `clients` returns how the clients of SDKs send conversations. `join_turns`
    returns messages in which user and assistant take turns, for an endpoint that refuses others.
    `read_edits` returns what a request asks the provider to leave out, from its fields; `native` is
    the request for a compaction only. `own_framing` is the more exact framing of the provider's own
    models, if known. `added_tools` says how to add tools to a request of another program.
    """

    name: str
    title: str
    short: str
    fields: Fields
    shape: Shape
    framing: Framing
    make_codec: MakeCodec
    make_reader: Callable[[str], Assembly]
    make_watch: Callable[[], Watch]
    make_form: Callable[[], Form]
    telling: re.Pattern[bytes]
    read_usage: Callable[[Mapping[str, Any]], Usage | None]
    endpoint: Endpoint
    errors: Errors
    aliases: tuple[str, ...] = ()
    own_framing: Framing | None = None
    reports: frozenset[str] = frozenset()
    report_rank: int = 0
    options: Options | None = None
    routes: Routes = Routes()
    clients: Callable[[], Sequence[ClientForm]] = tuple
    join_turns: Callable[[Sequence[Any]], list[Any]] | None = None
    read_edits: Callable[[Mapping[str, Any]], ServerEdits | None] = _no_edits
    native: NativeCompaction | None = None
    added_tools: AddedTools | None = None
