"""`ullage serve`: the guard in front of a server; clients only change their base URL.

It builds the configuration, starts the web server and stops it. The module does not know requests.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from ullage import config
from ullage.cli import endpoint, logs
from ullage.cli.lazy_face import LazyFace
from ullage.config import serving
from ullage.config.serving import Serve, Upstream
from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing
from ullage.runtime import make_runtime
from ullage.storage.place import MADE, PROXY, default_url, find_new_folder

if TYPE_CHECKING:
    from ullage.cli.leaving import LeavingServer
    from ullage.cli.listening import ConnectionLimits
    from ullage.proxy.app import App

log = logging.getLogger("ullage.serve")

SUMMARY = "put the guard in front of a model server, for any client"

KEEP_ALIVE_S: Final = 75
"""Seconds that an idle connection stays open: longer than in clients, which would otherwise meet a
closed one."""

COLLECTED: Final = (5_000, 20, 50)
"""Thresholds of the garbage collector: a full collection blocks all requests, for 25 ms at the
start and for 281 with full caches (measured together with other work), and few cycles need it."""

GRACE_S: Final = 1.5
"""Seconds after `drain_s` for closing everything; then the process breaks off remaining work."""

LOOK_S: Final = 0.1
"""Seconds between two checks whether the server must end."""

BACKLOG: Final = 2048

DRAWING: Final = ("jinja2", "starlette")
"""Packages that draw the pages: loaded with the first page, but checked at the start."""

EPILOG = """examples:
  ullage serve --upstream http://127.0.0.1:8080       in front of llama.cpp, vLLM, LM Studio ...
  ullage serve --upstream http://127.0.0.1:11434      in front of Ollama
  ullage serve --upstream https://api.openai.com      the client's own key is passed on
  ullage serve --config serve.toml                    several upstreams, rules, tokens
  ullage serve --demo                                 a small model of its own behind it

SIGHUP reads the configuration again. SIGTERM and Ctrl-C let streams come to their end; after
SIGTERM requests are still taken for a second (serve.leave_s), while /readyz says 503.
Several replicas share what they learn where each names one --store postgresql://...
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    where = parser.add_argument_group("where requests go")
    add_servers(where)
    bound = parser.add_argument_group("where clients come in")
    bound.add_argument("--host", help="the address to bind to (127.0.0.1)")
    bound.add_argument("--port", type=int, help="the port (8790); 0 takes a free one")
    bound.add_argument(
        "--token-env",
        metavar="NAME",
        help="the variable with the token that clients must present; needed beyond this machine",
    )
    what = parser.add_argument_group("actions")
    add_rules(what)
    what.add_argument(
        "--passive",
        action="store_true",
        help="never ask a stream for its usage report where the client did not",
    )
    what.add_argument(
        "--num-ctx", type=int, metavar="TOKENS", help="the window to ask of Ollama's own API"
    )
    what.add_argument(
        "--store",
        metavar="URL",
        help="where checkpoints are kept: memory:, sqlite:FILE or postgresql://... (a file in the "
        "user's data folder)",
    )
    what.add_argument(
        "--traces", action="store_true", help="make OpenTelemetry spans of requests (extra `otel`)"
    )
    _add_log(parser)


def add_servers(where: argparse._ArgumentGroup) -> None:
    """Declare the servers for requests."""
    where.add_argument(
        "--upstream",
        action="append",
        default=[],
        metavar="[NAME=]URL",
        help="a server, before those of the file; the first takes all requests",
    )
    where.add_argument(
        "--config", metavar="FILE", help="a TOML file of settings, with a table [serve]"
    )
    where.add_argument(
        "--demo",
        nargs="?",
        const=endpoint.EMBEDDED,
        metavar="MODEL",
        help=f"start a llama.cpp server behind it, with {endpoint.EMBEDDED} or another small model",
    )


def add_rules(what: argparse._ActionsContainer) -> None:
    """Declare the rules for requests."""
    endpoint.add_policy(what)
    endpoint.add_summarizer(what)
    what.add_argument("--observe", action="store_true", help="change nothing, only measure")
    what.add_argument(
        "--recall-tools",
        action="store_true",
        help="keep dropped texts, and give models tools to read and search them",
    )
    what.add_argument("--window", type=int, metavar="TOKENS", help="the window, if you know better")


def _add_log(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the log."""
    told = parser.add_argument_group("the log, on stderr")
    loud = told.add_mutually_exclusive_group()
    loud.add_argument(
        "-v", "--verbose", action="store_true", help="requests for the proxy's own pages too"
    )
    loud.add_argument("-q", "--quiet", action="store_true", help="warnings and errors only")
    logs.add_options(told)


def run(given: argparse.Namespace) -> int:
    """Serve until a signal; exit code 0 after an orderly end."""
    make = load_application()
    from ullage.proxy import memory

    memory.bound_arenas()
    raise_file_limit()
    with ExitStack() as held:
        discreet = logs.begin_logging(held, given)
        demo = None
        if given.demo is not None:
            window = given.window or endpoint.roomy(given.demo)
            server = held.enter_context(endpoint.make_embedded_server(given.demo, window))
            demo = Upstream("demo", server.base_url, server="llama.cpp")
            said = f"{given.demo} on llama.cpp, a window of {window:,} tokens"
            logs.announce(given, "demo", [said], model=given.demo, window=window)
        serve = read(given, os.environ, demo)
        discreet.learn(serve)
        app = make(serve)
        _set_levels(given)
        if given.traces:
            from ullage.telemetry import otel

            otel.enable(app.runtime)
        listening = bind_socket(serve.host, serve.port)
        held.callback(listening.close)
        new = find_new_folder(serve.store or "")
        _ = app.store  # opened here, so that an invalid store has an exit code
        if new is not None:
            logs.announce(given, "made_folder", [MADE.format(folder=new)], folder=str(new))
        port = listening.getsockname()[1]
        names = [one.name for one in serve.upstreams]
        told = {"host": serve.host, "port": port, "upstreams": names, "version": version("ullage")}
        logs.announce(given, "started", greeting(serve, port), **told)

        def again() -> Serve:
            found = read(given, os.environ, demo)
            discreet.learn(found)
            _set_levels(given)
            return found

        code = _run_server(app, serve, listening, again)
        logs.announce(given, "ended", [], code=code)
        return code


def _set_levels(given: argparse.Namespace) -> None:
    """Set levels: the options win over the settings."""
    requests = logging.WARNING if given.quiet else logging.DEBUG if given.verbose else None
    if requests is not None:
        config.get_logger("requests").setLevel(requests)
    logs.apply_levels(given)


def raise_file_limit() -> None:
    """Raise this process's limit of open files, including connections, to the system's maximum."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):  # some systems have a further limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def load_application(command: str = "ullage serve") -> Callable[[Serve], App]:
    """Load the application; raises ConfigurationError without the extra, naming the command."""
    missing = [name for name in ("httptools", "uvicorn", *DRAWING) if find_spec(name) is None]
    try:
        from ullage.proxy.app import App
    except ModuleNotFoundError as error:
        raise explain_missing(command, error.name) from error
    if missing:
        raise explain_missing(command, missing[0])
    return lambda serve: App(
        serve, runtime=make_runtime(remembered=serve.cache_bytes), face=LazyFace
    )


# ── configuration ───────────────────────────────────────────────────────────────────────────────


def read(
    given: argparse.Namespace,
    environment: Mapping[str, str],
    demo: Upstream | None = None,
    *,
    behind: Sequence[Upstream] = (),
    store: str | None = None,
) -> Serve:
    """Return the configuration: the file's, with the arguments over it.

    `behind` and then `demo` come after all other upstreams; `store` applies if no other is named.
    Raises ConfigurationError for invalid values.
    """
    named = [split_upstream(text, number) for number, text in enumerate(given.upstream)]
    rule = {
        "policy": given.policy,
        "window": None if demo is not None else given.window,
        "observe": given.observe or None,
    }
    rule = {key: value for key, value in rule.items() if value is not None}
    token = None if given.token_env is None else f"${given.token_env}"
    options = [
        ("--host", "serve.host", given.host),
        ("--port", "serve.port", given.port),
        ("--store", "serve.store", given.store),
        ("--num-ctx", "serve.num_ctx", given.num_ctx),
        ("--passive", "serve.usage", "passive" if given.passive else None),
        ("--recall-tools", "serve.recall_tools", given.recall_tools or None),
        ("--token-env", "serve.tokens.client", token),
        ("--upstream", "serve.upstreams", named or None),
        ("--summarizer", "summarizer", endpoint.name_summarizer(given, None)),
        (", ".join(f"--{name}" for name in rule), "serve.rules", [rule] if rule else None),
    ]
    file = None if given.config is None else Path(given.config)
    configured = config.load(environment, named=file, options=options)
    config.set_log_levels(environment, configured.settings.logging)
    last = behind if demo is None else (*behind, demo)
    return serving.read(configured, store=store or default_url(PROXY), behind=last)


def split_upstream(text: str, number: int) -> dict[str, str]:
    """Return the upstream of one argument: `URL`, or `NAME=URL`."""
    name, equals, url = text.partition("=")
    if not equals or "/" in name or ":" in name:
        host = urlsplit(text).hostname or ""
        name, url = re.sub(r"[^A-Za-z0-9._-]", "-", host).strip("-.") or "upstream", text
        name = name if number == 0 else f"{name}-{number + 1}"
    return {"name": name, "base_url": url}


# ── the greeting ────────────────────────────────────────────────────────────────────────────────


def greeting(serve: Serve, port: int) -> list[str]:
    """Return the lines for the operator: the address, and the settings for clients."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(serve.host, serve.host)  # noqa: S104 - shown
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    root = f"http://{host}:{port}"
    upstreams = ", ".join(f"{one.name} ({one.root})" for one in serve.upstreams)
    lines = [f"ullage guards {upstreams}", f"listening on {root}", "", "point a client at it:"]
    lines += [f"  {name:<21} {line}" for name, line in clients(root)]
    if serve.tokens:
        names = ", ".join(serve.tokens)
        lines += ["", f"clients present a token as their API key: there are {names}"]
    shown = f"live {root}/   " if serve.pages else ""
    return [*lines, "", f"{shown}numbers {root}/metrics   conversations {root}/ullage/sessions"]


def clients(root: str) -> list[tuple[str, str]]:
    """Return the line to paste for common clients."""
    codex = f'{{name="ullage",base_url="{root}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}'
    return [
        ("OpenAI SDKs", f"export OPENAI_BASE_URL={root}/v1"),
        ("Anthropic SDKs", f"export ANTHROPIC_BASE_URL={root}"),
        ("Claude Code", f"ANTHROPIC_BASE_URL={root} claude"),
        ("Codex CLI", f"codex -c model_provider=ullage -c 'model_providers.ullage={codex}'"),
        ("aider", f"OPENAI_API_BASE={root}/v1 aider --model openai/MODEL"),
        ("Ollama clients", f"export OLLAMA_HOST={root}"),
        ("curl", f"curl {root}/v1/models"),
    ]


# ── serving ─────────────────────────────────────────────────────────────────────────────────────


MOST_PORT: Final = 65_535
"""The last port of TCP (RFC 9293, 3.1: sixteen bits)."""


def bind_socket(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a listening socket; raises ConfigurationError if the address is not available.

    `option` is the option for another port.
    """
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    cause: OSError | None = None
    if 0 <= port <= MOST_PORT:
        try:
            return socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            cause = error
    why = f"ports are 0 to {MOST_PORT}" if cause is None else cause.strerror or cause
    raise ConfigurationError(
        f"cannot listen on {host}, port {port} ({why}): choose another by {option}, 0 for a free "
        "one"
    ) from cause


class Ending(Protocol):
    """An application whose page streams can be ended; its `leave`, if any, is called before."""

    def end_streams(self) -> None:
        """End the streams of pages."""
        ...


def serve_pages(app: Any, listening: socket.socket, drain_s: float) -> int:
    """Run only pages until a signal; return the exit code."""
    return _run_application(make_server(app, drain_s), app, listening, drain_s, lambda: None)


def _run_server(
    app: App, serve: Serve, listening: socket.socket, again: Callable[[], Serve]
) -> int:
    """Run the proxy until a signal; return the exit code."""

    def prepare() -> None:
        if hasattr(signal, "SIGHUP"):
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, reload_settings, app, again)

    from ullage.proxy.pages import OPEN

    server = make_server(app, serve.drain_s, serve.leave_s, limit_connections(app, serve, OPEN))
    return _run_application(server, app, listening, serve.drain_s, prepare)


def _run_application(
    server: LeavingServer,
    app: Any,
    listening: socket.socket,
    drain_s: float,
    prepare: Callable[[], None],
) -> int:
    """Run the web server until a signal; return the exit code."""
    ending = threading.Timer(math.ceil(drain_s) + GRACE_S, _end_process)
    ending.daemon = True

    async def main() -> None:
        prepare()
        watch = asyncio.create_task(_watch_end(server, ending, app))
        gc.collect()
        gc.freeze()  # loaded objects stay: later collections skip them
        gc.set_threshold(*COLLECTED)
        await server.serve(sockets=[listening])
        watch.cancel()

    # uvicorn raises the signals that ended it again, although they were handled.
    before = {
        number: signal.signal(number, _ignore_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with asyncio.Runner(loop_factory=find_loop()) as runner:
            runner.run(main())
    finally:
        ending.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0 if server.started else 1


def limit_connections(app: App, serve: Serve, always: tuple[str, ...]) -> ConnectionLimits:
    """Return the connection limits of a proxy, from its configuration."""
    from ullage.cli.listening import ConnectionLimits

    return ConnectionLimits(
        serve.most_connections,
        serve.head_bytes,
        serve.head_s,
        serve.body_s,
        serve.reader_s,
        always,
        app.meters.refuse,
    )


def make_server(
    app: Any, drain_s: float, leave_s: float = 0.0, limits: ConnectionLimits | None = None
) -> LeavingServer:
    """Return the web server of an application, not yet started."""
    import uvicorn

    from ullage.cli.leaving import LeavingServer
    from ullage.cli.listening import STANDARD, Bounded

    settings = uvicorn.Config(
        app,
        http=Bounded,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the client's address is never taken from headers
        server_header=False,  # both come from the upstream
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(drain_s),
    )
    return LeavingServer(settings, leave_s, limits or STANDARD)


async def _watch_end(server: LeavingServer, ending: threading.Timer, app: Ending) -> None:
    """Start the countdown once the server must end; viewers are disconnected at once."""
    while not server.is_leaving:  # noqa: ASYNC110 - a signal sets it, and tells nobody
        await asyncio.sleep(LOOK_S)
    if hasattr(app, "leave"):
        app.leave()
    while not server.should_exit:  # noqa: ASYNC110 - the same
        await asyncio.sleep(LOOK_S)
    ending.start()
    app.end_streams()


def _end_process() -> None:
    """End the process whatever still runs: a stuck store, or work that cannot be ended."""
    log.error("what still ran was broken off")
    os._exit(1)


def _ignore_signal(number: int, frame: object) -> None:
    del number, frame


def find_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the event loop: uvloop's if installed (not on Windows), else None."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


def reload_settings(app: App, again: Callable[[], Serve]) -> None:
    """Switch an application to the current configuration; a broken one changes nothing.

    The address, the store and the time-outs of connections stay until the next start.
    """
    try:
        serve = again()
    except ConfigurationError as error:
        log.warning("the configuration stays as it was: %s", error)
        return
    kept = app.serve
    app.reload(serve)
    fixed = (
        "host",
        "port",
        "store",
        "connect_s",
        "first_byte_s",
        "idle_s",
        "leave_s",
        "drain_s",
        "most_requests",
        "most_connections",
        "head_bytes",
        "head_s",
        "body_s",
        "reader_s",
        "cache_conversations",
        "cache_bytes",
        "page_bytes",
    )
    changed = [name for name in fixed if getattr(serve, name) != getattr(kept, name)]
    log.info("the configuration was read again")
    if changed:
        log.warning("not before the next start: %s", ", ".join(changed))
