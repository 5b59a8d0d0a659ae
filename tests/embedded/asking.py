"""How these tests ask a server and look at processes: plain HTTP and /proc."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def ask(url: str, body: Any = None) -> tuple[int, Any]:
    """GET `url`, or POST `body` as JSON; return the status and the parsed answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        if body is None:
            connection.request("GET", target)
        else:
            connection.request(
                "POST", target, json.dumps(body), {"Content-Type": "application/json"}
            )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def gone(pid: int) -> bool:
    """Tell whether the process has ended; a zombie that nobody has reaped yet has."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
