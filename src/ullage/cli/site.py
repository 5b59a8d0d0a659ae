"""The built documentation site, served from memory to this machine only, by names in its zip.

The zip is in the package, or in a checkout the one that `make site` built. The module knows no
commands.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import ullage
from ullage.core.errors import ConfigurationError

HOSTS: Final = ("127.0.0.1", "localhost")
KINDS: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
}
POLICY: Final = "default-src 'self' 'unsafe-inline' data:; worker-src 'self' blob:; base-uri 'none'"
"""The browser must not load anything from elsewhere."""


def find_archive() -> Path:
    """Return the zip of the site: the package's own, else the one of the running checkout."""
    package = Path(ullage.__file__).parent
    checkout = package.parents[1]
    for path in (package / "docs.zip", checkout / "build" / "docs.zip"):
        if path.is_file():
            return path
    way = "run `make site`, which builds it, or read docs/"
    if not (checkout / "docs").is_dir():
        way = (
            "it comes with a released wheel; in a checkout run `make site` and "
            "`.venv/bin/ullage docs`, or read its folder docs/"
        )
    raise ConfigurationError(f"this installation has no documentation in it: {way}")


def read_files(archive: Path) -> dict[str, bytes]:
    """Return the files of the site by name. Raises ConfigurationError for an invalid zip."""
    try:
        with zipfile.ZipFile(archive) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{archive} cannot be read: {error}; install again") from error


class SiteServer(ThreadingHTTPServer):
    """Serves files from memory, by their names, to this machine."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], files: Mapping[str, bytes]) -> None:
        super().__init__(address, SiteHandler)
        self.files = files

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that left before its answer; show any bug."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class SiteHandler(BaseHTTPRequestHandler):
    """One request: a file of the site, by GET or HEAD, with a host name of this machine."""

    server: SiteServer
    server_version = "ullage"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer with the file that the path names."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        name = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
        files = self.server.files
        if host not in HOSTS:
            self._send(403, b"forbidden: ask for 127.0.0.1 or localhost\n", "txt")
        elif name in files:
            self._send(200, files[name], name.rpartition(".")[2])
        else:
            self._send(404, files.get("404.html", b"there is no such page\n"), "html")

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def _send(self, status: int, body: bytes, suffix: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", KINDS.get(suffix, "text/plain; charset=utf-8"))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in http.server
        """Log nothing, to keep the reader's privacy."""
