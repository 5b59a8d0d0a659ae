"""URLs of servers as they may be shown: without what opens them. It connects to nothing."""

from __future__ import annotations

import re
from typing import Final

HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")
USER: Final = re.compile(r"[\w.%+-]*")
SECRET: Final = ("password", "sslpassword")
"""Parameters of libpq that are secrets (PostgreSQL, 32.1.2)."""


def hide_password(url: str) -> str:
    """Return a URL without its password, wherever it stands, or is likely to stand."""
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
    """Return a host with its port; what is no port may be a password without its `@host`."""
    return host if HOST.fullmatch(host) else host.partition(":")[0]
