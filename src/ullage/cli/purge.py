"""`ullage purge`: erase the text of sessions, or the data of a tenant, for good."""

from __future__ import annotations

import argparse
import os
import time
from typing import Final

from ullage.agent.purging import Purge, list_old_sessions, purge_sessions
from ullage.cli import desk, lines
from ullage.core.errors import ConfigurationError, StoreError
from ullage.storage import open_store
from ullage.storage.place import PROXY, default_url
from ullage.storage.protocol import DAY_S, STANDARD, ForgetsTenants, StoreLimits
from ullage.windows.question import mark_client, mark_credential

SUMMARY = "erase the texts of sessions, or all records of a tenant, for good"

EPILOG = """A session keeps its name, the times and types of its events, and what it cost: `show`
and `verify` read it as before. Exports, backups and what a provider keeps are out of reach:
docs/log.md says what else. A proxy that runs keeps a conversation in memory until it is stopped."""

BUSY: Final = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument("session", nargs="*", help="their names, or how each begins")
    parser.add_argument(
        "--older-than",
        type=float,
        metavar="DAYS",
        help="all sessions without an event since then, and records of a proxy unused since then",
    )
    parser.add_argument(
        "--tenant",
        metavar="NAME",
        help="the proxy's records of the client whose token has this name in [serve.tokens]",
    )
    parser.add_argument(
        "--tenant-key-env",
        metavar="VARIABLE",
        help="the proxy's records of the client that sent the API key in this variable",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be erased")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Erase, and report the result and the remaining places; exit code 5 for a busy session."""
    tenant = _read_tenant(given)
    chosen = [bool(given.session), given.older_than is not None, tenant is not None]
    if sum(chosen) != 1:
        raise ConfigurationError(
            "name what to erase: sessions by name, --older-than DAYS, or one tenant by "
            "--tenant NAME or --tenant-key-env VARIABLE"
        )
    if tenant is not None:
        return _purge_tenant(given, tenant)
    if given.older_than is not None and not given.older_than > 0:
        raise ConfigurationError(f"--older-than is a number of days over 0: {given.older_than:g}")
    code = _purge_log(given)
    if given.older_than is not None and not given.dry_run:
        _purge_store(given)
    return code


def _read_tenant(given: argparse.Namespace) -> str | None:
    """Return the mark of a tenant in scopes, or None if no tenant is named."""
    if given.tenant is not None:
        return mark_client(given.tenant)
    if given.tenant_key_env is None:
        return None
    key = os.environ.get(given.tenant_key_env)
    if not key:
        raise ConfigurationError(
            f"the variable {given.tenant_key_env!r:.60} is not set: put the tenant's API key there"
        )
    return mark_credential(key)


def _purge_log(given: argparse.Namespace) -> int:
    """Erase sessions of the log."""
    with desk.lend_log(given) as log:
        if given.session:
            names = [desk.find_session(log, name).name for name in given.session]
        else:
            names = list_old_sessions(log, time.time() - given.older_than * DAY_S)
        what = f"{len(names):,} session{'s'[: len(names) != 1]} of {log.url}"
        if given.dry_run:
            for name in names:
                lines.out(name)
            desk.say(f"{what} would be erased")
            return 0
        if names:
            desk.confirm_loss(given, what)
        done = purge_sessions(log, names)
    for line in draw_purge(done):
        lines.out(line)
    return BUSY if done.busy else 0


def draw_purge(done: Purge) -> list[str]:
    """Return the result, one line for each session, and the places that may still hold text."""
    told = [f"erased  {name}" for name in done.sessions] or ["nothing to erase"]
    told += [f"left    {name}: {why}" for name, why in done.busy]
    if done.files:
        told.append(f"{done.files:,} contents of files that undo could bring back are gone")
    if done.linked:
        told.append(f"these hold some of the text, purge them too: {', '.join(done.linked)}")
    if done.left:
        told.append(f"may still hold it: {done.left}")
    return told


def _purge_store(given: argparse.Namespace) -> None:
    """Delete entries that were not used for so long from the proxy's store, or the named one."""
    url, limits = given.store or default_url(PROXY), StoreLimits(ttl_s=given.older_than * DAY_S)
    try:
        store = open_store(url, create=False, limits=limits)
    except StoreError:
        if given.store is not None:
            raise
        return  # no proxy kept anything here
    try:
        gone = store.purge(time.time())
        lines.out(f"{gone:,} record{'s'[: gone != 1]} erased in {store.url}")
    finally:
        store.close()


def _purge_tenant(given: argparse.Namespace, mark: str) -> int:
    """Delete the data of one tenant from a shared store."""
    store = open_store(given.store or default_url(PROXY), create=False, limits=STANDARD)
    try:
        if not isinstance(store, ForgetsTenants):
            raise ConfigurationError(
                f"{store.url} cannot forget one tenant alone: it needs forget_tenant and scrub "
                "(docs/recipes/store.md)"
            )
        if given.dry_run:
            raise ConfigurationError("--dry-run lists sessions: leave it out for a tenant")
        desk.confirm_loss(given, f"what {store.url} keeps of this tenant")
        gone = store.forget_tenant(mark)
        left = store.scrub()
    finally:
        store.close()
    lines.out(f"{gone:,} record{'s'[: gone != 1]} of this tenant erased in {store.url}")
    if left:
        lines.out(f"may still hold it: {left}")
    return 0
