"""A package index for tests: serves wheels by the simple API, as JSON or HTML, and breaks off."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self


@dataclass
class Habits:
    """What an index does: its form, whether it knows ranges, its login, its breaks."""

    form: str = "json"
    ranges: bool = True
    hashes: bool = True
    login: str = ""
    pause_s: float = 0.0
    """Seconds between two pieces of a file, of 16 KiB each."""
    breaks: list[int] = field(default_factory=list)
    """Bytes after which the next answers break off, one each."""


class Index:
    """An index over the wheels in a folder; `asked` are the paths, `ranges` those of files."""

    def __init__(self, folder: Path, habits: Habits | None = None) -> None:
        self.folder = folder
        self.habits = habits or Habits()
        self.asked: list[str] = []
        self.ranges: list[str | None] = []
        self.ended = threading.Event()
        self._server = _Http(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/simple"

    def page(self, name: str) -> tuple[bytes, str] | None:
        """Return the page of a distribution."""
        found = [
            path
            for path in sorted(self.folder.glob("*.whl"))
            if path.name.split("-")[0].replace("_", "-") == name
        ]
        digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
        if not found:
            return None
        if self.habits.form == "json":
            kept = self.habits.hashes
            files = [
                {
                    "filename": path.name,
                    "url": f"../../files/{path.name}",
                    "hashes": {"sha256": digest} if kept else {},
                }
                for path, digest in digests.items()
            ]
            body = json.dumps({"meta": {"api-version": "1.0"}, "name": name, "files": files})
            return body.encode(), "application/vnd.pypi.simple.v1+json"
        mark = "#sha256={}" if self.habits.hashes else ""
        anchors = [
            f'<a href="/files/{path.name}{mark.format(digest)}">{path.name}</a><br>'
            for path, digest in digests.items()
        ]
        return f"<!DOCTYPE html><body>{''.join(anchors)}</body>".encode(), "text/html"


class _Http(http.server.ThreadingHTTPServer):
    def __init__(self, index: Index) -> None:
        self.index = index
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    protocol_version = "HTTP/1.1"
    server: _Http

    def log_message(self, *args: object) -> None:
        del args

    def do_GET(self) -> None:
        self.server.index.asked.append(self.path)
        login = base64.b64encode(self.server.index.habits.login.encode()).decode()
        if self.server.index.habits.login and self.headers.get("authorization") != f"Basic {login}":
            return self._send(401, b"who are you?", "text/plain")
        if self.path.startswith("/files/"):
            return self._file(self.server.index.folder / self.path.removeprefix("/files/"))
        page = self.server.index.page(self.path.removeprefix("/simple/").strip("/"))
        return self._send(404, b"", "text/plain") if page is None else self._send(200, *page)

    def _file(self, path: Path) -> None:
        data, wanted = path.read_bytes(), self.headers.get("range")
        self.server.index.ranges.append(wanted)
        if wanted is None or not self.server.index.habits.ranges:
            return self._send(200, data, "application/zip")
        found = re.fullmatch(r"bytes=(\d+)-", wanted)
        assert found is not None
        start = int(found[1])
        if start >= len(data):
            return self._send(416, b"", "text/plain")
        said = f"bytes {start}-{len(data) - 1}/{len(data)}"
        return self._send(206, data[start:], "application/zip", [("Content-Range", said)])

    def _send(self, status: int, body: bytes, kind: str, more: Any = ()) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in more:
            self.send_header(name, value)
        self.end_headers()
        if status in (200, 206) and kind == "application/zip" and self.server.index.habits.breaks:
            body = body[: self.server.index.habits.breaks.pop(0)]
            self.close_connection = True
        pause_s = self.server.index.habits.pause_s if kind == "application/zip" else 0.0
        for start in range(0, len(body), 16_384):
            self.wfile.write(body[start : start + 16_384])
            self.server.index.ended.wait(pause_s)
