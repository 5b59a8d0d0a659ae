"""`ullage models`: list, show and refresh the table of models."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import ullage
from ullage import config
from ullage.cli.window import read_key
from ullage.core.dialects.families import ModelFamily, Thinking, find_family
from ullage.core.errors import ConfigurationError, ProviderError
from ullage.core.errors.nearest import suggest
from ullage.transport import HttpRequest, Transport, loopback, mask_url
from ullage.windows.rows import Row
from ullage.windows.table import Refresh, WindowTable

SUMMARY = "list, show and refresh the table of models"

RAISES_SHOWN: Final = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="list|show|update", required=True)
    listed = verbs.add_parser("list", help="list ids with their bounds")
    listed.add_argument("--provider", metavar="P", help="only this provider's")
    listed.add_argument("--base-url", metavar="U", help="ask this server for its models instead")
    listed.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="the environment variable that holds its key (else the provider's usual one)",
    )
    listed.add_argument("--json", action="store_true", help="print one JSON document")
    one = verbs.add_parser("show", help="show one row, with the claims that lost")
    one.add_argument("id", help="a model id, as the provider spells it")
    one.add_argument("--provider", metavar="P", help="the provider that serves it (else the maker)")
    one.add_argument("--json", action="store_true", help="print one JSON document")
    update = verbs.add_parser("update", help="fetch a table into the user's cache folder")
    update.add_argument("origin", metavar="URL|FILE", help="where it is")
    update.add_argument(
        "--allow-raises", action="store_true", help="accept bounds larger than those that hold now"
    )


def run(given: argparse.Namespace) -> int:
    """Run the subcommand; returns 0, or 1 for an id or provider without rows."""
    return _VERBS[given.verb](given)


def _cache() -> Path | None:
    """Return the configured cache folder that every resolver reads, or None for the user's."""
    held = config.load().settings.cache_dir
    return Path(held) if held else None


def _list_served(given: argparse.Namespace) -> int:
    """Print the models of a server, each with its window."""
    found = ullage.models(
        base_url=given.base_url, api_key=read_key(given.api_key_env, given.base_url, given.provider)
    )
    rows = [(name, window.input_tokens, window.name_source()) for name, window in found]
    if given.json:
        keys = ("model", "input_tokens", "source")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
        return 0
    for name, tokens, source in rows:
        print(f"{name}\t{'unknown' if tokens is None else f'{tokens:,}'}\t{source}")
    print(f"{len(rows):,} models listed by {mask_url(given.base_url)}", file=sys.stderr)
    return 0 if rows else 1


def _list(given: argparse.Namespace) -> int:
    if given.base_url is not None:
        return _list_served(given)
    table = WindowTable(_cache())
    providers = table.providers()
    if given.provider is not None:
        known = table.provider(given.provider)
        if known is None:
            raise ConfigurationError(
                f"the table of {table.snapshot} has no provider {given.provider!r}; "
                + suggest(given.provider, providers, f"it has {', '.join(providers)}")
            )
        providers = [known]
    rows = [row for row in table.book.rows() if row.provider in providers]
    if given.json:
        print(json.dumps([_plain(row) for row in rows], indent=2))
        return 0
    for row in rows:
        print(f"{row.provider}\t{row.model}\t{row.bound:,}")
    print(f"{len(rows):,} ids in the table of {table.snapshot}", file=sys.stderr)
    return 0


def _show(given: argparse.Namespace) -> int:
    table = WindowTable(_cache())
    # The request is for a row of the table, so the id is a model's even at a host of deployments.
    base = given.id if given.provider is not None else None
    row = table.row(given.id, given.provider, base_model=base)
    if row is None:
        at = f" at {given.provider}" if given.provider is not None else ""
        near = table.suggest(given.id)
        an = f"{near} An" if near else "an"
        raise ConfigurationError(
            f"the table of {table.snapshot} has no row for {given.id}{at}: {an} "
            "id of another host needs --provider, a model of your own a window that you set"
        )
    family = find_family(row.model)
    if given.json:
        print(json.dumps({**_plain(row), "family": describe_family(family)}, indent=2))
    else:
        print("\n".join([_format_row(row, table.snapshot), *_format_family(family)]))
    return 0


def describe_family(family: ModelFamily) -> dict[str, Any]:
    """Return the laws of a family as plain data, without unknown ones."""
    fields = {"name": family.name, "thinking": family.thinking, "laws": sorted(family.laws)}
    known: dict[str, Any] = {
        "alternates": family.alternates,
        "results_first": family.results_first,
        "signed": family.signed,
        "marks": family.marks,
        "compaction": list(family.compaction),
        "limits": {k: v for k, v in asdict(family.limits).items() if v is not None},
        "sources": dict(family.sources),
        "date": family.date,
    }
    return fields | {name: value for name, value in known.items() if value}


def _format_family(family: ModelFamily) -> Iterator[str]:
    """Yield the laws of a family in words, each with its source."""
    yield f"  family: {family.name}" + (f", read {family.date}" if family.date else "")
    limits = family.limits
    most = None if limits.images is None else f"at most {limits.images:,} in a request"
    if limits.fewer_images is not None:
        most = f"{most}, {limits.fewer_images:,} in a window under a million tokens"
    told = {
        "thinking": f"{THINKING[family.thinking]}",
        "alternates": "user and assistant take turns" if family.alternates else None,
        "results_first": "come first in the message after their calls"
        if family.results_first
        else None,
        "signed": f"reasoning comes back with its {family.signed}" if family.signed else None,
        "marks": f"{family.marks} for the cache in a request" if family.marks else None,
        "compaction": f"by the provider: {', '.join(family.compaction)}"
        if family.compaction
        else None,
        "size": f"{limits.size:,} bytes at most" if limits.size else None,
        "messages": f"{limits.messages:,} at most" if limits.messages else None,
        "tools": f"{limits.tools:,} at most" if limits.tools else None,
        "images": most,
    }
    for name, said in told.items():
        if said is not None:
            source = family.sources.get(name)
            yield f"    {LABELS.get(name, name)}: {said}" + (f" ({source})" if source else "")


LABELS: Final[Mapping[str, str]] = {
    "thinking": "thinking in kept messages",
    "alternates": "turns",
    "results_first": "results",
    "signed": "signature",
}

THINKING: Final[Mapping[Thinking, str]] = {
    "demanded": "demanded in the open tool loop",
    "bound": "bound to the messages before it, left out after an edit",
    "paired": "stays with the item that it led to",
    "dropped": "dropped by the chat template after the next question",
    "unknown": "unknown, a refusal teaches it",
}


def _plain(row: Row) -> dict[str, Any]:
    return {"bound": row.bound, **asdict(row)}


def _format_row(row: Row, snapshot: str) -> str:
    limits = ", ".join(f"{kind} {tokens:,}" for kind, tokens in row.limits.items())
    lines = [
        f"{row.provider}/{row.model}: {row.bound:,} tokens of input, by the table of {snapshot}",
        f"  limits: {limits}",
        f"  listed by: {', '.join(row.lineages) or 'nobody any more'}",
    ]
    if row.rule:
        lines.append(f"  held by hand: {row.rule}")
    lines += [f"  lost: {loss.kind} {loss.tokens:,} by {loss.lineage}" for loss in row.losses]
    for price in row.prices:
        above = f" over {price.above:,} tokens" if price.above else ""
        rates = ((k, v) for k, v in asdict(price).items() if k != "above" and v is not None)
        paid = ", ".join(f"{kind.replace('_', ' ')} {rate:g}" for kind, rate in rates)
        lines.append(f"  dollars per million tokens{above}: {paid}")
    return "\n".join(lines)


def _update(given: argparse.Namespace) -> int:
    table = WindowTable(_cache())
    fetched = Refresh(_fetch_table(given.origin), mask_url(given.origin), time.time(), _cache())
    change = fetched.change(table)
    raises = [f"  {name}: {now:,} -> {then:,}" for name, now, then in change.raises]
    more = len(raises) - RAISES_SHOWN
    told = raises[:RAISES_SHOWN] + ([f"  and {more:,} more"] if more > 0 else [])
    if raises and not given.allow_raises:
        raise ConfigurationError(
            f"{mask_url(given.origin)} raises {len(raises):,} bounds, so nothing was changed; "
            "say --allow-raises to accept that\n" + "\n".join(told)
        )
    path = fetched.install()
    print(f"{change.rows:,} rows of {change.snapshot} in {path}")
    if raises:
        print(f"{len(raises):,} bounds are raised:\n" + "\n".join(told))
    if WindowTable(_cache()).snapshot != change.snapshot:
        print(f"they wait: the bundled table, of {table.snapshot}, is newer", file=sys.stderr)
    return 0


def _fetch_table(origin: str) -> bytes:
    """Return the bytes of a table; an origin with `://` is a URL."""
    if "://" not in origin:
        try:
            return Path(origin).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{origin} cannot be read: {error}") from error
    if not origin.startswith("https://") and not (
        origin.startswith("http://") and loopback(origin)
    ):
        raise ConfigurationError(f"{mask_url(origin)} is not an https URL: give one, or a file")
    answer = Transport().ask(HttpRequest(origin))
    if answer.status != 200:
        said = answer.fault or f"{mask_url(origin)} answered {answer.status}"
        raise ProviderError(f"the table could not be fetched: {said}")
    return answer.body


_VERBS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "list": _list,
    "show": _show,
    "update": _update,
}
