"""`ullage doctor`: list this machine's model servers, their models, and their problems.

It asks only the loopback interface, sends no key and loads no model. For credentials it shows the
names of variables, never a value. The module does not know the servers' protocols; the probes do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import ullage
from ullage import config
from ullage.cli.config import safe
from ullage.config.settings import Configured
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.window import Window, resolve
from ullage.tools import Sandbox, Workspace
from ullage.transport import HttpRequest, HttpResponse, Timeouts, Transport, loopback, mask_url
from ullage.windows import Question, table
from ullage.windows.listings import Listings
from ullage.windows.probes import Found, probe
from ullage.windows.probes.cards import cards, payload

SUMMARY = "show which local servers answer, their models, and any problems"

PORTS: Final[Mapping[int, str]] = {
    8080: "llama.cpp",
    11434: "Ollama",
    1234: "LM Studio",
    8000: "vLLM",
    30000: "SGLang",
    5001: "KoboldCpp",
    5000: "TabbyAPI",
    3000: "TGI",
    4000: "LiteLLM",
    1337: "Jan",
}
"""The default ports of servers, with the server that usually uses each."""

LIMITS: Final = Timeouts(connect_s=0.5, read_s=3.0)
PATIENCE_S: Final = 1.0
"""Seconds before a line on stderr tells the reason for waiting."""

MOST_PORTS: Final = 64
MOST_MODELS: Final = 16
"""Most models to ask about at one server; a hub may list hundreds."""


@dataclass(frozen=True, slots=True)
class Served:
    """One model of a server: its window, and the number of slots that may share it."""

    model: str
    window: Window
    slots: int = 1
    complaint: str = ""


@dataclass(frozen=True, slots=True)
class Local:
    """One server that answers.

    `server` is "" if it was not recognised; `unasked` is the number of listed models that were not
    asked about.
    """

    url: str
    server: str = ""
    models: tuple[Served, ...] = ()
    complaint: str = ""
    unasked: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and its fix."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The findings of the doctor; `asked` are the URLs."""

    versions: Mapping[str, str]
    asked: Sequence[str]
    servers: Sequence[Local]
    problems: Sequence[Problem]
    credentials: Mapping[str, Sequence[str]]
    configuration: Mapping[str, Any]
    store: Mapping[str, Any] | None = None


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    usual = ", ".join(f"{port} {name}" for port, name in PORTS.items())
    parser.add_argument(
        "--ports",
        type=_ports,
        metavar="N,N",
        help=f"the ports to ask on this machine, instead of the usual ones ({usual})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--verify",
        nargs="?",
        const="ullage",
        choices=("ullage", "all"),
        help="ask no server: compare the installed files of ullage with their record, with `all` "
        "those of its dependencies too; exit code 1 where any differs",
    )
    from ullage.cli import watch  # it examines servers in the same way

    watch.arguments(parser)


def _ports(text: str) -> list[int]:
    """Read `--ports`; raises errors that argparse reports as wrong usage."""
    ports: list[int] = []
    for word in text.split(","):
        number = word.strip()
        plain = number.isascii() and number.isdigit() and len(number) < 6
        if not plain or not 0 < int(number) <= 65535:
            raise argparse.ArgumentTypeError(f"{number!r} is no port: a number from 1 to 65535")
        ports.append(int(number))
    if len(ports) > MOST_PORTS:
        raise argparse.ArgumentTypeError(f"{len(ports)} ports are too many: {MOST_PORTS} at most")
    return list(dict.fromkeys(ports))


def run(given: argparse.Namespace) -> int:
    """Print the report; the exit code is 0 even if nothing answers."""
    if given.verify:
        if given.watch or given.once or given.ports or given.store:
            raise ConfigurationError(
                "--verify looks at installed files alone: give --watch, --once, --ports and "
                "--store to another `ullage doctor`"
            )
        from ullage.cli import installed

        return installed.run(given.verify, as_json=given.json)
    if given.watch or given.once:
        from ullage.cli import watch

        return watch.run(given)
    found, problems = _load_settings()
    settings = found.settings
    urls = [] if settings.offline else _urls(given.ports, settings.base_url)
    servers = examine(urls)
    cache = Path(settings.cache_dir) if settings.cache_dir else table.folder()
    report = DoctorReport(
        versions=_versions(cache),
        asked=urls,
        servers=servers,
        problems=[*problems, *(p for local in servers for p in diagnose(local))],
        credentials=credentials(os.environ),
        configuration=_settings(found, cache),
        store=given.store and _describe_store(given.store),
    )
    print(json.dumps(_plain(report), indent=2) if given.json else _text(report))
    return 0


# --- asking ---------------------------------------------------------------------------------------


def _urls(ports: Iterable[int] | None, base_url: str | None) -> list[str]:
    """Return the base URLs to ask: those of the ports, the configured local one first."""
    urls = [f"http://127.0.0.1:{port}/v1" for port in (PORTS if ports is None else ports)]
    if ports is not None or base_url is None or not _web(base_url) or not loopback(base_url):
        return urls
    own = mask_url(base_url)
    return urls if _place(own) in map(_place, urls) else [own, *urls]


def _web(url: str) -> bool:
    try:
        Question(None, url)
    except ConfigurationError:
        return False
    return True


def _place(url: str) -> tuple[int | None, str]:
    """Identify a server of this machine, whichever of its host names the URL has."""
    parts = urlsplit(url)
    return parts.port, parts.path.rstrip("/").removesuffix("/v1")


def examine(
    urls: Sequence[str], limits: Timeouts = LIMITS, patience_s: float = PATIENCE_S
) -> list[Local]:
    """Ask all URLs at once and return the servers that answer, in the order of the URLs."""
    if not urls:
        return []
    with ThreadPoolExecutor(len(urls), "ullage-doctor") as pool:
        asking = [pool.submit(_examine_url, url, Transport(limits).ask) for url in urls]
        _, late = wait(asking, patience_s)
        if late:
            say = f"asking {len(urls)} local servers, waiting for {len(late)} ..."
            print(say, file=sys.stderr, flush=True)
        return [local for one in asking if (local := one.result()) is not None]


def _examine_url(url: str, ask: Callable[[HttpRequest], HttpResponse]) -> Local | None:
    """Return the server that answers at a URL, or None."""
    talk = _Talk(ask)
    found = talk.hear(url)
    if not talk.answered:
        return None
    name = safe(url).removesuffix("/v1")
    if not talk.models or (found.claims and len(talk.models) == 1):
        told = (_make_served("".join(talk.models), found),) if found.claims else ()
        return Local(name, found.server, told, found.complaint)
    served = []
    for model in talk.models[:MOST_MODELS]:
        one = talk.hear(url, model, found.server)
        served.append(_make_served(model, one))
        found = replace(found, server=found.server or one.server)
        if talk.silent:
            break
    return Local(name, found.server, tuple(served), "", len(talk.models) - len(served))


def _make_served(model: str, found: Found) -> Served:
    window = resolve(found.claims, model=model or None)
    return Served(model, window, found.slots, found.complaint)


class _Talk:
    """The dialogue with one server: the models that it lists, and whether it answered."""

    def __init__(self, ask: Callable[[HttpRequest], HttpResponse]) -> None:
        self._ask = ask
        self.answered = False
        self.silent = False
        self.models: list[str] = []

    def hear(self, url: str, model: str | None = None, server: str = "") -> Found:
        """Run one probe to its end."""
        asking = probe(url, model, None, time.time(), server)
        try:
            what = next(asking)
            while True:
                what = asking.send(self._answer(what))
        except StopIteration as done:
            found: Found = done.value
            return found

    def _answer(self, what: HttpRequest) -> HttpResponse:
        if _loads(what.url):
            return HttpResponse(0, fault="not asked: it would load the model")
        answer = self._ask(what)
        self.answered = self.answered or answer.status > 0
        self.silent = answer.status == 0
        if not self.models and what.url.endswith("/models"):
            ids = (card.get("id") for card in cards(payload(answer)))
            self.models = list(dict.fromkeys(i for i in ids if isinstance(i, str) and i))
        return answer


def _loads(url: str) -> bool:
    """Tell whether this request would load a model: a router's child that is not loaded."""
    parts = urlsplit(url)
    return (
        parts.path.endswith("/props")
        and "model=" in parts.query
        and "autoload=false" not in parts.query
    )


# --- judging --------------------------------------------------------------------------------------


def diagnose(local: Local) -> Iterator[Problem]:
    """Yield the known problems of a server, each with its fix."""
    if local.complaint and not local.models:
        yield Problem(local.complaint, _remedy(local))
    for served in local.models:
        where = f"{local.url}, {served.model or 'its model'}"
        if served.complaint:
            yield Problem(f"{where}: {served.complaint}", _remedy(local))
        bound = served.window.input_tokens
        if local.server == "ollama" and bound is not None:
            yield from _cut(where, bound, served.window)
        if local.server == "koboldcpp":
            yield Problem(
                f"{where}: longer prompts are cut silently",
                "start it with a larger --contextsize, and guard your requests",
            )
        if served.slots > 1:
            yield Problem(
                f"{where}: {served.slots} slots; if they share one pool, requests at the same time "
                f"have less than {bound or 0:,} tokens each",
                "start the server with -np 1, or with --no-kv-unified and -c of slots times window",
            )


def _cut(where: str, bound: int, window: Window) -> Iterator[Problem]:
    """Yield the problem of an Ollama model with a smaller window than it could have."""
    trained = max((c.tokens for c in window.claims if c.kind == "trained"), default=0)
    if bound < trained:
        yield Problem(
            f"{where}: {bound:,} tokens are allocated of {trained:,} that it was trained for; /v1 "
            "cannot set num_ctx and cuts longer prompts silently",
            f"start Ollama with OLLAMA_CONTEXT_LENGTH={trained} (or what memory allows), or set "
            "num_ctx: `PARAMETER num_ctx N` in the model's Modelfile, `options.num_ctx` in "
            "/api/chat",
        )


def _remedy(local: Local) -> str:
    """Return the remedy for a server that reports no window."""
    if "wants a key" in local.complaint:
        return f"no key is sent from here: ullage window --base-url {local.url}/v1 --api-key-env N"
    if not local.server:
        return "if it serves models, set the window: --window N, or context_windows"
    return "load the model and ask again, or set the window: --window N, or context_windows"


# --- settings and credentials ---------------------------------------------------------------------


def credentials(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the set variables that usually hold a provider's key: names only."""
    listings = Listings()
    held: dict[str, list[str]] = {}
    for provider in listings.names():
        for name in listings.key_env(provider):
            if environment.get(name):
                held.setdefault(name, []).append(provider)
    return dict(sorted(held.items()))


def _load_settings() -> tuple[Configured, list[Problem]]:
    """Return the settings; broken ones become a problem of the report."""
    try:
        found = config.load()
    except ConfigurationError as error:
        fix = "repair it; until then every other command stops here, and this one takes defaults"
        return Configured(), [Problem(str(error), fix)]
    url = found.settings.base_url
    if url is None or _web(url):
        return found, []
    # Not repeated: an invalid URL may hold a password anywhere.
    what = f"the base_url of {found.origins['base_url']} is no http or https URL"
    return found, [Problem(what, "write one such as http://127.0.0.1:8080/v1")]


def _settings(found: Configured, cache: Path) -> dict[str, Any]:
    try:
        files = [str(path) for path in config.files(os.environ)]
    except ConfigurationError:
        files = []
    url = found.settings.base_url
    return {
        "files": files,
        "variables": [name for name in config.variables(os.environ) if os.environ.get(name)],
        "base_url": None if url is None else safe(url),
        "offline": found.settings.offline,
        "cache": str(cache),
        "cache_exists": cache.is_dir(),
        "shell": Sandbox().lacking(Workspace(Path())),
    }


def _describe_store(url: str) -> dict[str, Any]:
    """Return the version of a store's schema. Raises as `read_schema` does."""
    from ullage.storage.schema import read_schema

    found = read_schema(url)
    return {**asdict(found), "outlook": found.outlook}


def _versions(cache: Path) -> dict[str, str]:
    return {
        "ullage": ullage.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "table": table.WindowTable(cache).snapshot,
    }


# --- telling --------------------------------------------------------------------------------------


def _plain(report: DoctorReport) -> dict[str, Any]:
    """Return the report for JSON, with whether each window is known."""
    told = asdict(report)
    for local, plain in zip(report.servers, told["servers"], strict=True):
        for served, one in zip(local.models, plain["models"], strict=True):
            one["window"] = {"known": served.window.known, **one["window"]}
    return told


def _text(report: DoctorReport) -> str:
    told = report.versions
    lines = [
        f"ullage {told['ullage']}, Python {told['python']}, {told['platform']}",
        f"table of models of {told['table']}",
        "",
        *_servers(report),
        "",
        "problems:" if report.problems else "problems: none known",
    ]
    for problem in report.problems:
        lines += [f"  ! {_clean(problem.what)}", f"    fix: {_clean(problem.fix)}"]
    held = [f"{name} ({', '.join(who)})" for name, who in report.credentials.items()]
    files = report.configuration["files"]
    shell = report.configuration["shell"]
    state = "" if report.configuration["cache_exists"] else " (not there yet)"
    lines += [
        "",
        f"credentials in the environment, by name: {', '.join(held) or 'none'}",
        f"configuration files: {', '.join(files) or 'none'}",
        f"variables of ullage: {', '.join(report.configuration['variables']) or 'none'}",
        f"cache folder: {report.configuration['cache']}{state}",
        f"commands of agents: {_clean(shell and f'off: {shell}') or 'run in a sandbox'}",
    ]
    if (store := report.store) is not None:
        lines.append(
            f"store {_clean(store['url'])}: schema version {store['found']}, of {store['known']} "
            f"known here; {store['outlook']}"
        )
    url = report.configuration["base_url"]
    if url is not None:
        far = "" if loopback(url) else " (not asked: only this machine is)"
        lines.append(f"configured base URL: {url}{far}")
    return "\n".join(lines)


def _servers(report: DoctorReport) -> Iterator[str]:
    if report.configuration["offline"]:
        yield "servers: not asked, since `offline` is set"
        return
    places = ", ".join(urlsplit(url).netloc.removeprefix("127.0.0.1:") for url in report.asked)
    if not report.servers:
        yield f"servers: none answers (asked on this machine: {places})"
        return
    yield f"servers (asked on this machine: {places}):"
    for local in report.servers:
        yield f"  {local.url}: {local.server or 'answers, and is no model server known here'}"
        for served in local.models:
            yield from map(_clean, _model(served))
        if local.unasked:
            yield f"    and {local.unasked:,} more models that were not asked about"


def _model(served: Served) -> Iterator[str]:
    name, window = served.model or "its model", served.window
    known = f"{window.input_tokens:,} tokens, {window.kind}" if window.known else "window unknown"
    yield f"    {name}: {known}"
    for claim in window.claims:
        if claim.tokens != window.input_tokens:
            yield f"      - {claim.tokens:,} tokens, {claim.kind}"


def _clean(text: str) -> str:
    """Return a line without control characters, since servers choose their models' names."""
    return "".join(c if c.isprintable() else "?" for c in text)
