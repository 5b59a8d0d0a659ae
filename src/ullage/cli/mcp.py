"""`ullage mcp`: ullage's functions as tools for programs that cannot be proxied.

Over stdio, its host starts it; over HTTP, it listens. It reads settings and credentials;
`ullage.mcp_tools` implements the tools.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

import ullage
from ullage.api.functions import window
from ullage.cli import desk
from ullage.cli.recall import find_places
from ullage.cli.window import describe, find_server, read_key
from ullage.config.serving import SHORTEST, loopback
from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing
from ullage.importers.places import SOURCES

SUMMARY = "tools for programs that cannot be proxied, by the Model Context Protocol"

EPILOG: Final = """Tools: window, count, context, search, recall, compact (a dry run). All
are read only. How hosts are told of it: docs/mcp.md. For Claude Code:
claude mcp add ullage -- ullage mcp"""

DRAIN_S: Final = 1.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="listen there, at /mcp, instead of stdio; port 0 takes a free one",
    )
    parser.add_argument(
        "--token-env",
        metavar="NAME",
        help="the variable with the key that hosts must show; needed beyond this machine",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="what search and recall look into, a store or a log of sessions (else the setting "
        "`store`, then the user's own sessions and the proxy's store)",
    )
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="WHAT",
        default=",".join(SOURCES),
        help="the programs whose sessions may be read, with commas between; none: no sessions "
        f"({','.join(SOURCES)})",
    )


def run(given: argparse.Namespace) -> int:
    """Serve the tools until the host closes the connection, or until a signal."""
    sources = _read_sources(given.sources)
    address = None if given.http is None else _read_address(given.http)
    key = _read_key(given, address)
    try:
        from ullage.mcp_tools.server import make_application, make_server
        from ullage.mcp_tools.tools import HostTools
    except ModuleNotFoundError as error:
        raise explain_missing("ullage mcp", error.name) from error
    schema = resources.files("ullage.cli").joinpath("context.schema.json").read_text("utf-8")
    tools = HostTools(sources, lambda: find_places(given.store), _find_window)
    server = make_server(tools, ullage.__version__, json.loads(schema))
    if address is None:
        asyncio.run(server.run_stdio_async())
        return 0
    return _listen(make_application(server, key), address)


def _listen(application: Any, address: tuple[str, int]) -> int:
    """Serve over HTTP until a signal."""
    try:
        from ullage.cli.serve import bind_socket, serve_pages
    except ModuleNotFoundError as error:
        raise explain_missing("ullage mcp --http", error.name) from error
    host, port = address
    with bind_socket(host, port, "--http HOST:PORT") as listening:
        shown = f"[{host}]" if ":" in host else host
        desk.say(f"tools at http://{shown}:{listening.getsockname()[1]}/mcp")
        return serve_pages(application, listening, DRAIN_S)


def _find_window(
    model: str | None, base_url: str | None, provider: str | None
) -> Mapping[str, Any]:
    """Return the data of `ullage window --json`; keys come only from the environment."""
    known, url = find_server(provider, base_url)
    key = read_key(None, url, known)
    return describe(window(model, base_url=url, provider=known, api_key=key))


def _read_sources(text: str) -> list[str]:
    named = [name.strip() for name in text.split(",") if name.strip() not in ("", "none")]
    unknown = sorted(set(named) - set(SOURCES))
    if unknown:
        raise ConfigurationError(
            f"--from {unknown[0]}: sessions of {', '.join(SOURCES)} can be read, or none"
        )
    return named


def _read_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(
            f"--http {text}: expected HOST:PORT, such as 127.0.0.1:8792 or [::1]:8792"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def _read_key(given: argparse.Namespace, address: tuple[str, int] | None) -> str | None:
    if given.token_env is None:
        if address is not None and not loopback(address[0]):
            raise ConfigurationError(
                f"--http {given.http} can be reached from other machines, and no key is set: give "
                "--token-env NAME, or listen on 127.0.0.1"
            )
        return None
    if address is None:
        raise ConfigurationError("--token-env is for --http: a host that starts us needs no key")
    key = os.environ.get(given.token_env, "")
    if len(key) < SHORTEST:
        raise ConfigurationError(
            f"--token-env {given.token_env} holds no secret: give {SHORTEST} or more characters"
        )
    return key
