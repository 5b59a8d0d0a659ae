"""`ullage window`: the size of a model's window, its source, and how to change it.

It takes the API key from the environment, only by the variable's name, and never prints it. The
module knows no servers and no listings.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

from ullage.api.functions import window
from ullage.cli import lines
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest
from ullage.core.tokens.claim import Source
from ullage.core.tokens.window import HINT, Window
from ullage.runtime import default

SUMMARY = "show the true context window of a model, with its source"

CHANGES: Final[Mapping[Source | None, tuple[str, ...]]] = {
    "override": (
        "--window N, or context_windows in the configuration (see `ullage config show --origin`)",
        "taking the number out: then the server, the listing or the table decides",
    ),
    **dict.fromkeys(
        ("refusal", "truncation", "contention"),
        (
            "--refresh forgets learned windows; an answered larger prompt refutes them",
            "--window N; only repeated refusals that name their numbers in fields lower it",
        ),
    ),
    "probe": (
        "starting the server, or loading the model, with another window; then --refresh",
        "--window N, or context_windows in the configuration, below an allocated window",
    ),
    "listing": (
        "--window N, or context_windows in the configuration",
        "--base-url U or --provider P of another host; --refresh asks this one again",
    ),
    "table": (
        "--window N, or context_windows in the configuration",
        "--base-url U of the server that serves it, or --provider P: a live answer beats the table",
        "`ullage models update URL|FILE`: a newer table",
    ),
    None: (
        "--window N, or context_windows in the configuration",
        "--base-url U of the server that serves it, or --provider P",
    ),
}
"""Ways to change the bound, by the source that set it (None: no source did)."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", nargs="?", help="model id; not needed for a single-model server")
    parser.add_argument(
        "--base-url",
        metavar="U",
        help="the server's URL, such as http://127.0.0.1:8080/v1 (else the configured one)",
    )
    parser.add_argument(
        "--provider", metavar="P", help="the provider that serves it, if no URL shows it"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="the environment variable that holds the key (else the provider's usual one)",
    )
    parser.add_argument(
        "--window", type=int, metavar="N", help="the operator's own word, in tokens"
    )
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="forget earlier answers and learned windows, and ask again",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show every claim that was heard, and what would change the answer",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Print the window; unknown is an answer too, so the exit code is 0."""
    provider, base_url = find_server(given.provider, given.base_url)
    with _hold_warnings() as held:
        found = window(
            given.model,
            base_url=base_url,
            provider=provider,
            api_key=read_key(given.api_key_env, base_url, provider),
            override=given.window,
            refresh=given.refresh,
        )
    shown = found.warnings if given.json or given.explain or not found.known else ()
    for warning in held:
        if warning not in shown:
            lines.note(warning)
    if given.json:
        print(json.dumps(describe(found), indent=2))
    elif given.explain:
        print(found.explain() + "\n" + _changes(found))
    elif not found.known:
        near = default().windows.table.suggest(given.model) if given.model else ""
        print(found.explain() + (f"\n{near}" if near else ""))
    else:
        print(f"{found.input_tokens:,} tokens of input ({found.name_source()})")
    return 0


@contextmanager
def _hold_warnings() -> Iterator[list[str]]:
    """Hold back log records about windows: most of them are part of the answer."""
    held: list[str] = []

    def hold(record: logging.LogRecord) -> bool:
        held.append(record.getMessage())
        return False

    logger = logging.getLogger("ullage.windows")
    logger.addFilter(hold)
    try:
        yield held
    finally:
        logger.removeFilter(hold)


def find_server(provider: str | None, base_url: str | None) -> tuple[str | None, str | None]:
    """Return provider and base URL to ask: the named ones, else the configured URL."""
    known = _provider(provider)
    configured = _find_base_url(default().settings.base_url, known)
    return known, base_url if base_url is not None else configured


def describe(found: Window) -> dict[str, object]:
    """Return a window as plain data, with the ways to change it."""
    changes = list(CHANGES[found.source])
    hint = None if found.known else HINT
    return {"known": found.known, **asdict(found), "hint": hint, "changes": changes}


def _changes(found: Window) -> str:
    return "\n".join(["to change it:", *(f"  {line}" for line in CHANGES[found.source])])


def _provider(name: str | None) -> str | None:
    """Return a provider's name as in its listing or its rows; refuses one without either."""
    if name is None:
        return None
    windows = default().windows
    listed = windows.listings.names()
    if name in listed:
        return name
    known = windows.table.provider(name)
    if known is not None:
        return known
    names = sorted({*listed, *windows.table.providers()})
    hint = suggest(name, names, f"known are {', '.join(names)}")
    raise ConfigurationError(f"no listing and no table has a provider {name!r}; {hint}")


def _find_base_url(url: str | None, provider: str | None) -> str | None:
    """Return the configured base URL, unless the named provider has other hosts."""
    listings = default().windows.listings
    row = listings.row(provider) if provider is not None else None
    if url is None or row is None or not row.hosts or listings.provider_for(url) == provider:
        return url
    return None


def read_key(variable: str | None, base_url: str | None, provider: str | None) -> str | None:
    """Return the key to send, or None. Without a variable, only a provider's own host gets it.

    Raises ConfigurationError for a variable that is not set.
    """
    if variable is not None:
        key = os.environ.get(variable)
        if not key:
            # The argument is not repeated: it may be the key itself.
            raise ConfigurationError(
                "--api-key-env names no environment variable that is set: give the variable's "
                "name, such as OPENAI_API_KEY, not the key"
            )
        return key
    listings = default().windows.listings
    if base_url is not None:
        owner = listings.provider_for(base_url) if base_url.startswith("https://") else None
        if owner is None or provider not in (None, owner):
            return None
        provider = owner
    names = listings.key_env(provider) if provider is not None else ()
    return next((key for name in names if (key := os.environ.get(name))), None)
