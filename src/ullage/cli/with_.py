"""`ullage with CLIENT`: run a client with the guard in front of its server.

It starts the proxy in a thread, redirects the client to it, runs the client in the foreground and
prints a summary. The client has the terminal; its exit code is the command's.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ullage.cli import clients, desk, endpoint
from ullage.config.serving import Serve, Upstream
from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.cli.receipt import EndListener
    from ullage.proxy.app import App

SUMMARY = "run a client with the guard in front of its server: Claude Code, Codex, any command"

NOT_FOUND: Final = 127
NOT_RUN: Final = 126
"""Exit codes of shells for a command that does not exist, or cannot be run."""

LOOK_S: Final = 1.0
"""Seconds between two checks for signals; the end of the client is noticed at once."""

SIGNALLED: Final = 128
"""Added to the number of the signal that ended a client."""

SHORT: Final = 512
"""Most tokens of an answer of the embedded model, if the client has a setting for it."""

STORE: Final = "memory:"
"""Nothing is kept after the end; compactions are only found while the proxy runs."""

PASSED_ON: Final = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
LEFT_ALONE: Final = ("SIGINT", "SIGQUIT")
"""Signals of the terminal's keys: the client gets them from the terminal itself."""

EPILOG = """examples:
  ullage with claude                                  in front of api.anthropic.com
  ullage with claude --upstream http://127.0.0.1:8080 a local server that speaks Messages
  ullage with codex exec 'what is in this folder?'    the client's own arguments follow its name
  ullage with --demo pi -p 'hello'                    a small model of its own behind it
  ullage with --observe -- python agent.py            any command that uses a provider's SDK

Options stand before the client's name; --upstream may stand directly behind it. docs/with.md
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from ullage.cli import serve

    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    where = parser.add_argument_group("where requests go (else to the client's own provider)")
    serve.add_servers(where)
    what = parser.add_argument_group("what is done")
    serve.add_rules(what)
    what.add_argument(
        "--store", metavar="URL", help="where checkpoints are kept beyond the end (memory:)"
    )
    told = parser.add_argument_group("what is told")
    told.add_argument("-q", "--quiet", action="store_true", help="failures only, and no receipt")
    told.add_argument("--log", metavar="FILE", help="append the proxy's log to a file")
    parser.add_argument("client", metavar="CLIENT", help="the command: claude, codex, pi, ...")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="...", help="the client's own arguments"
    )


def settle_words(words: Sequence[str]) -> list[str]:
    """Return a command line in which `--demo` never takes the client's name for a model."""
    options = argparse.ArgumentParser(add_help=False)
    arguments(options)
    flags = {
        name for action in options._actions if action.nargs == 0 for name in action.option_strings  # noqa: SLF001 - argparse lists them nowhere else
    }  # fmt: skip
    settled: list[str] = []
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "--":
        word = left.pop(0)
        if word == "--demo":
            known = endpoint.list_models()
            is_model = bool(left) and (left[0].endswith(".gguf") or left[0] in known)
            word = f"--demo={left.pop(0) if is_model else endpoint.EMBEDDED}"
        settled.append(word)
        if "=" not in word and word not in flags and left:
            settled.append(left.pop(0))
    return settled + left


def run(given: argparse.Namespace) -> int:
    """Run the client; the exit code is its own."""
    _take_upstream(given)
    client = clients.find_client(given.client)
    path = shutil.which(given.client)
    if path is None:
        how = f"install it: {client.install}" if client.install else "install it, or give its path"
        desk.say(f"ullage with: there is no command {given.client!r:.100} here: {how}")
        return NOT_FOUND
    with ExitStack() as held:
        running = _start_proxy(held, given, client)
        place = _find_place(running, given, _Folder(held))
        told = client.tell(place)
        keyless = given.demo is not None
        environ = clients.make_environment(client, place, told, keyless=keyless)
        if not given.quiet:
            servers = ", ".join(one.root for one in running.serve.upstreams)
            desk.say(f"ullage with {client.command}: {running.root} in front of {servers}")
        code = run_foreground([path, *told.words, *given.words], environ)
        running.end()
        _tell_end(running, given, client)
    return code


def _take_upstream(given: argparse.Namespace) -> None:
    """Take `--upstream URL` from the beginning of the client's arguments."""
    words = list(given.words)
    while words and (words[0] == "--upstream" or words[0].startswith("--upstream=")):
        _, equals, url = words.pop(0).partition("=")
        if not equals:
            if not words:
                raise ConfigurationError("--upstream needs a URL after it")
            url = words.pop(0)
        given.upstream = [*given.upstream, url]
    given.words = words[1:] if words[:1] == ["--"] and given.words != words else words


# ── the proxy ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Running:
    """A running proxy: its address, its configuration, its records, and its client."""

    root: str
    serve: Serve
    app: App
    heard: EndListener
    client: clients.KnownClient
    background: Any

    def end(self) -> None:
        """End it; its records stay readable."""
        self.background.end()


def _start_proxy(
    held: ExitStack, given: argparse.Namespace, client: clients.KnownClient
) -> _Running:
    """Start the proxy on a free port of the loopback; it ends with `held`."""
    from ullage.cli import serve

    make = serve.load_application("ullage with")
    from ullage.cli.background import BackgroundServer
    from ullage.cli.receipt import EndListener

    demo = None
    if given.demo is not None:
        window = given.window or endpoint.roomy(given.demo)
        server = held.enter_context(endpoint.make_embedded_server(given.demo, window))
        demo = Upstream("demo", server.base_url, server="llama.cpp")
    found = read(given, os.environ, client, demo)
    heard = EndListener()
    _start_logging(held, given, found, heard)
    app = make(found)
    listening = held.enter_context(serve.bind_socket(found.host, 0))
    _ = app.store  # opened here, so that an invalid store has an exit code
    background = BackgroundServer(app, listening)
    held.callback(background.end)
    background.begin()
    root = f"http://{found.host}:{listening.getsockname()[1]}"
    return _Running(root, found, app, heard, client, background)


def read(
    given: argparse.Namespace,
    environ: Mapping[str, str],
    client: clients.KnownClient,
    demo: Upstream | None = None,
) -> Serve:
    """Return the proxy's configuration for one client on this machine.

    Upstreams are those of the options, else of the named file, else the client's own.
    """
    from ullage.cli import serve

    whole = argparse.Namespace(
        **vars(given), host=None, port=None, num_ctx=None, passive=False, token_env=None
    )
    behind = () if demo is not None else clients.list_upstreams(client, environ)
    found = serve.read(whole, environ, demo, behind=behind, store=given.store or STORE)
    if demo is not None:
        upstreams: tuple[Upstream, ...] = (demo,)
    elif given.upstream:
        upstreams = found.upstreams[: len(given.upstream)]
    elif given.config is not None and len(found.upstreams) > len(behind):
        upstreams = found.upstreams[: -len(behind)]
    else:
        upstreams = tuple(behind)
    rules = tuple(rule for rule in found.rules if rule.key is None)
    return replace(
        found, upstreams=upstreams, rules=rules, tokens={}, operators=(), host="127.0.0.1", port=0,
        hosts=(), store=given.store or STORE,
    )  # fmt: skip


def _start_logging(
    held: ExitStack, given: argparse.Namespace, found: Serve, heard: EndListener
) -> None:
    """Keep log records for the end, and write them to the named file."""
    from ullage.cli import logs

    handlers: list[logging.Handler] = [heard]
    discreet = logs.Discreet()
    discreet.learn(found)
    if given.log is not None:
        try:
            file = logging.FileHandler(given.log, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"--log {given.log} cannot be written: {error.strerror}"
            ) from error
        held.callback(file.close)
        handlers.append(file)
    for handler in handlers:
        logs.add_handler(held, handler, discreet)
    requests = logging.getLogger("ullage.proxy.requests")
    held.callback(requests.setLevel, requests.level)
    requests.setLevel(logging.INFO)


# ── redirecting the client ──────────────────────────────────────────────────────────────────────


class _Folder:
    """A folder that is created on first use, and deleted at the end."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._made: Path | None = None

    def __call__(self) -> Path:
        """Return the folder."""
        if self._made is None:
            made = tempfile.TemporaryDirectory(prefix="ullage-with-", ignore_cleanup_errors=True)
            self._made = Path(self._held.enter_context(made))
        return self._made


def _find_place(
    running: _Running, given: argparse.Namespace, folder: _Folder
) -> clients.ClientPlace:
    client, upstreams = running.client, running.serve.upstreams
    named = bool(given.upstream) or given.demo is not None or given.config is not None
    foreign = named and clients.is_foreign(client, upstreams)
    models: Sequence[str] = ()
    if foreign and client.lists:
        demo = given.demo
        models = [Path(demo).stem] if demo else list_served(upstreams[0], os.environ)
    answer = SHORT if given.demo is not None else None
    words, environ = given.words, os.environ
    return clients.ClientPlace(running.root, folder, foreign, models, words, environ, answer)


def list_served(upstream: Upstream, environ: Mapping[str, str]) -> list[str]:
    """Return the models that a server lists, or [] if it cannot be asked."""
    from ullage.runtime import default
    from ullage.transport import HttpRequest

    endpoint = registry.find(registry.DEFAULT).endpoint
    key = upstream.api_key or environ.get("OPENAI_API_KEY")
    ask = HttpRequest(
        endpoint.listing(f"{upstream.root}/v1"),
        api_key=key,
        auth=endpoint.auth,
        extra=endpoint.headers,
    )
    body, (rows, name) = default().transport.ask(ask).json(), endpoint.listed
    listed = body.get(rows) if isinstance(body, Mapping) else None
    models = listed if isinstance(listed, list) else []
    return [str(row[name]) for row in models if isinstance(row, Mapping) and row.get(name)]


# ── the client ──────────────────────────────────────────────────────────────────────────────────


def run_foreground(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command with this terminal; return its exit code, or 128 + N after signal N."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        del frame
        if process is None:
            early.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    with _handle_signals(pass_on):
        try:
            process = subprocess.Popen(command, env=dict(environ))  # noqa: S603 - the user's own command
        except OSError as error:
            desk.say(f"ullage with: {command[0]} cannot be run: {error.strerror or error}")
            return NOT_RUN
        for number in early:
            process.send_signal(number)
        waiting = threading.Thread(target=process.wait, daemon=True)
        waiting.start()
        while waiting.is_alive():  # handles a signal just before the wait
            waiting.join(LOOK_S)
        code = process.returncode
    return code if code >= 0 else SIGNALLED - code


@contextlib.contextmanager
def _handle_signals(pass_on: Any) -> Iterator[None]:
    """Pass signals on; those of keys reach the client by themselves, and are ignored here.

    They have a handler instead of SIG_IGN, which the client would inherit.
    """
    known = [(name, pass_on) for name in PASSED_ON] + [(name, _ignore) for name in LEFT_ALONE]
    before = {}
    for name, handler in known:
        number = getattr(signal, name, None)
        if number is not None:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(number: int, frame: object) -> None:
    del number, frame


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


def _tell_end(running: _Running, given: argparse.Namespace, client: clients.KnownClient) -> None:
    """Print the receipt, the failures, and hints."""
    from ullage.cli.receipt import add_up, write_failures, write_receipt, write_warnings

    found = add_up(running.app, running.heard)
    failed = list(write_failures(running.heard))
    told = [] if given.quiet else list(write_receipt(found, observed=given.observe))
    told += ["ullage: failures", *failed] if failed else []
    told += [f"  {hint}" for hint in _list_hints(running, client)]
    warned = [] if given.quiet else list(write_warnings(running.heard))
    told += ["ullage: warnings", *warned] if warned else []
    if not found.requests and not failed and not given.quiet:
        told.append(
            f"ullage: no conversation of {client.title} came through the proxy: it asked nothing, "
            "or was told otherwise, or speaks to a provider of another kind (docs/with.md)"
        )
    if told:
        desk.say("\n".join(told))


def _list_hints(running: _Running, client: clients.KnownClient) -> Iterator[str]:
    """Yield hints about the server if it lacks the API of the client."""
    for path, home, api in APIS:
        if running.heard.is_missing(path):
            servers = ", ".join(one.root for one in running.serve.upstreams)
            needed = f"{client.title} needs {home.paths}{api}"
            yield f"{path} was asked for, which {servers} has not: {needed}"


APIS: Final = (
    ("/v1/messages", clients.ANTHROPIC, ", as llama.cpp, vLLM, LM Studio and Ollama have it too"),
    ("/v1/responses", clients.OPENAI, ": /v1/responses, as llama.cpp, vLLM and Ollama have it too"),
)
