"""`ullage docs`: open the documentation of this version in a browser, without the network."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import suppress

import ullage
from ullage.cli import lines
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest

SUMMARY = "open this documentation in a browser, offline"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "page", nargs="?", default="", help="the page, such as proxy or ollama; else the first"
    )
    parser.add_argument("--list", action="store_true", help="list the pages and end")
    parser.add_argument(
        "--print", action="store_true", help="print the address, and open no browser"
    )
    parser.add_argument("--port", type=int, default=0, help="the port (a free one)")


def run(given: argparse.Namespace) -> int:
    """Serve the site to this machine until Ctrl-C."""
    import webbrowser

    from ullage.cli.site import SiteServer, find_archive, read_files

    files = read_files(find_archive())
    names = sorted(name.removesuffix(".html") for name in files if name.endswith(".html"))
    if given.list:
        print("\n".join(name for name in names if name != "404"))
        return 0
    page = find_page(given.page, names)
    try:
        server = SiteServer(("127.0.0.1", given.port), files)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"cannot listen on 127.0.0.1, port {given.port} ({error}): choose another by --port, "
            "0 for a free one"
        ) from error
    with server:
        address = f"http://127.0.0.1:{server.server_port}/{page and f'{page}.html'}"
        lines.note(f"documentation of ullage {ullage.__version__}, until Ctrl-C: {address}")
        if not given.print and not webbrowser.open(address):
            lines.note("no browser was found: open the address in yours")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def find_page(wanted: str, names: Iterable[str]) -> str:
    """Return the name of the wanted page, by its whole name or by its last part."""
    known = list(names)
    asked = wanted.removesuffix(".md").removesuffix(".html").strip("/")
    ends = [name for name in known if name.rpartition("/")[2] == asked]
    if asked in known or not asked:
        return asked
    if len(ends) == 1:
        return ends[0]
    near = f"choose from {', '.join(ends)}" if ends else suggest(asked, known, "see --list")
    raise ConfigurationError(f"the documentation has no page {wanted!r:.80}: {near}")
