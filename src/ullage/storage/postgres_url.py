"""URLs of servers without their secrets, safe to show. It connects to nothing."""

from __future__ import annotations

import re
from typing import Final

HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")
USER: Final = re.compile(r"[\w.%+-]*")
SECRET: Final = ("password", "sslpassword")
"""Parameters of libpq that are secrets (PostgreSQL, 32.1.2)."""


def hide_password(url: str) -> str:
    """Return a URL without its password, at every place where one may be."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    before, at, after = rest.rpartition("@")
    user = before.partition(":")[0]
    shown = f"{user}@" if at and USER.fullmatch(user) else ""
    place, mark, query = after.partition("?")
    hosts, slash, name = place.partition("/")
    shown += ",".join(_host(host) for host in hosts.split(",")) + slash + name
    kept = [pair for pair in query.split("&") if pair.partition("=")[0].lower() not in SECRET]
    return f"{scheme}://{shown}{mark if kept else ''}{'&'.join(kept)}"


def _host(host: str) -> str:
    """Return a host with its port; an invalid port may be a password without its `@host`."""
    return host if HOST.fullmatch(host) else host.partition(":")[0]
