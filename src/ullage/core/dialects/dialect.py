"""What a dialect is: one frozen value. Everything outside this folder reads it, nothing else.

Each folder beside this file holds one as `DIALECT`. A value is cheap to load: the codec, the
readers of answers and the renderer are loaded when they are first made.
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
    """Where a request has its parts.

    `messages` and `system` are names of fields; without `system` the operator's text stands among
    the messages. `output` are the fields that may limit an answer, the one that wins first, and
    `limit` the one that a guard writes; both stand in the field `inside`, where there is one.
    `stored` are fields that name a history which the server keeps. `takes_text` says that a text
    may stand for a list with one message of the user, `takes_blocks` that `system` may be a list of
    blocks. `streams_unasked` says that an answer is a stream unless the request says otherwise,
    `lines` that a stream is lines of JSON. A `single` request is one prompt: it is measured, and
    nothing of it can be left out. `leaves_out` are fields of ours that the endpoint does not
    take (`model`, `stream`), because its address says them. `system_parts` is the field of a system
    prompt that holds its blocks, where it is an object; `spellings` are second names of fields that
    the endpoint takes as well.
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
        """What the dialect calls `messages`, `system` and `max_tokens`."""
        named = {"messages": self.messages, "max_tokens": self.limit}
        return named | ({"system": self.system} if self.system else {})

    def spell(self, given: Mapping[str, Any]) -> Fields:
        """Return the fields by the names that a request gives them."""
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
    """By what a request is recognised: only what this dialect has and the others lack.

    `roles` and `keys` are of a message, `parts` types of its content parts, `part_keys` fields of
    a part that has no type. `items` says that a message may have a type and no role, `typed` that
    one of type `message` holds parts of type `text`. The functions tell what no table can.
    `keywords` are parameters that only this dialect's clients take, `parameters` those that
    together show such a client's function.
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

    `address` returns the URL for a base URL and a model. `defaults` returns the fields that a call
    has where nobody gives them, by base URL; `trailing` says that usage comes behind the end of a
    stream. `home` is the host of the provider, and the variable in which its own client looks for
    a key. `counts` is the path at which llama.cpp's server counts a request. `listing` returns the
    URL that lists the models of a server; `listed` names the field of the answer that holds them,
    and the field of each that holds its id. `key_in_query` says that `?key=` may carry the key.
    `cache_key` returns the field that names which requests share a cached prefix, by base URL.
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
    """How clients of the dialect read what went wrong; each function returns a body as JSON has it.

    `report` takes a status, a code for programs and a text for people; `too_large` the tokens of
    a prompt and the most that is taken, and is sent with status 400. `break_off` returns the bytes
    that end a stream early, by a text and the bytes that were sent last.
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
    """The paths at which a proxy meets the dialect.

    `guarded` carry a conversation; `checked` are forwarded with a body that is checked; `plain`
    are forwarded as they are, by methods and pattern; `addressed` name the model. Below `prefix`
    clients read its errors.
    """

    guarded: Mapping[str, Fields] = field(default_factory=dict)
    checked: frozenset[str] = frozenset()
    addressed: Sequence[Address] = ()
    plain: Sequence[tuple[frozenset[str], re.Pattern[str]]] = ()
    prefix: str = "\0"


@dataclass(frozen=True, slots=True)
class Options:
    """What a request may say of the server's own window, where the dialect has a word for it.

    `window` returns the window that a request will be given, by its fields and the operator's
    `num_ctx`; `write` what to put in the place of the field `inside` to have that window and a
    lowered limit of the answer, None where it stays; `read_single` what a request of one prompt
    puts before the model: messages, and tokens that go along with them.
    """

    window: Callable[[Mapping[str, Any], int | None], int | None]
    write: Callable[[Mapping[str, Any], int | None, int | None], Mapping[str, Any] | None]
    read_single: Callable[[Mapping[str, Any]], tuple[Sequence[Mapping[str, Any]], int]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """All that the rest of the package reads of a dialect.

    `name` is that of its folder, `title` how people call it, `short` what a file of such requests
    is called. `telling` matches what the bytes of an event have that tell of an end, a report or
    an error; its text may have it too. `reports` are keys of a usage report by which the dialect
    is known, the lowest `report_rank` first. `clients` returns how the clients of SDKs send
    conversations. `join_turns` returns messages in which user and assistant
    take turns, for an endpoint that refuses others. `read_edits` returns what a request, by its
    fields, asks the provider to leave out; `native` is how it is asked for a compaction alone.
    `own_framing` is that of the provider's own models, where more is known of it. `added_tools`
    is how tools may be added to a request that somebody else made.
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
