"""Raw sockets on both sides of a real `ullage serve`: bytes in, bytes out, everything counted.

It sends what no HTTP client would and records what reaches the server behind. It judges nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

BOUNDED: Final = find_spec("ullage.cli.listening") is not None
"""Whether connections and bodies are bounded yet; what needs it is skipped until then."""

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 30.0
CHUNK: Final = 65_536
LISTENING: Final = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
LENGTH: Final = re.compile(rb"(?im)^content-length:\s*(\d+)\s*$")
CANDID: Final = "import logging\nlogging.getLogger().setLevel(logging.INFO)\n"
"""Has the server log more than it does for its users: what is said at INFO is searched as well."""

MESSAGE: Final = {"role": "user", "content": "hello"}
ANSWERED: Final = {
    "id": "x",
    "object": "chat.completion",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came: `raw` is everything, `closed` tells that the server hung up."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    raw: bytes = field(repr=False)
    closed: bool = False

    def get(self, name: str) -> str | None:
        """Return the first header of a name."""
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


def request(
    method: str,
    target: str,
    body: bytes = b"",
    *more: str,
    host: str = "localhost",
    length: bool = True,
) -> bytes:
    """Return a request as bytes; `more` are whole header lines."""
    lines = [f"{method} {target} HTTP/1.1", *([f"Host: {host}"] if host else []), *more]
    if length and (body or method == "POST"):
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def chat(**fields: Any) -> bytes:
    """Return a chat body with further fields."""
    return json.dumps({"model": "m", "messages": [MESSAGE], **fields}).encode()


def replies(data: bytes, *, closed: bool) -> list[Reply]:
    """Return the answers in bytes that a server sent, interim ones left out."""
    found = []
    while data.startswith(b"HTTP/1."):
        head, blank, rest = data.partition(b"\r\n\r\n")
        if not blank:
            break
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(":") for line in lines]
        headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
        status, held = int(first.split(" ")[1]), dict(headers)
        if status < 200:
            data = rest
            continue
        if "content-length" in held:
            size = int(held["content-length"])
            body, data = rest[:size], rest[size:]
        else:
            body, data = rest, b""
        found.append(Reply(status, headers, body, head + blank + body, closed))
    return found


class Line:
    """A connection to a port, for whatever bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Send; False if the server hung up meanwhile."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def end(self) -> None:
        """Say that nothing more will be sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def read(self, *, until: int = 1, wait_s: float = PATIENCE_S) -> list[Reply]:
        """Return answers: `until` as many are whole, the server hangs up, or time is over."""
        data, closed = b"", False
        self._socket.settimeout(wait_s)
        while True:
            try:
                piece = self._socket.recv(CHUNK)
            except TimeoutError:
                break
            except OSError:
                piece = b""
            if not piece:
                closed = True
                break
            data += piece
            if until and len(_whole(data)) >= until:
                break
        return replies(data, closed=closed)


def _whole(data: bytes) -> list[Reply]:
    """Return the answers of which every byte is there."""
    return [r for r in replies(data, closed=False) if _complete(r)]


def _complete(reply: Reply) -> bool:
    size = reply.get("content-length")
    if size is not None:
        return len(reply.body) >= int(size)
    if reply.status in (204, 304):
        return True
    return reply.get("transfer-encoding") == "chunked" and reply.body.endswith(b"0\r\n\r\n")


def ask(port: int, data: bytes, *, wait_s: float = PATIENCE_S) -> Reply:
    """Send bytes on a connection of their own; return the answer, status 0 where none came."""
    with Line(port) as line:
        line.send(data)
        found = line.read(wait_s=wait_s)
    return found[0] if found else Reply(0, (), b"", b"", closed=True)


class Behind:
    """A server behind the proxy that takes requests by their length and records all bytes.

    `answer` makes the whole answer of a request, head included. `connections` counts who came.
    """

    def __init__(self, answer: Callable[[bytes, bytes], bytes] | None = None) -> None:
        self._answer = answer or answered
        self._listening = socket.create_server((HOST, 0))
        self.port = int(self._listening.getsockname()[1])
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in tuple(self._threads):
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._open.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        data = b""
        with connection, contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in data:
                    piece = connection.recv(CHUNK)
                    if not piece:
                        return
                    data += piece
                head, _, data = data.partition(b"\r\n\r\n")
                sized = LENGTH.search(head)
                size = int(sized[1]) if sized else 0
                pieces, got = [data], len(data)
                while got < size and (piece := connection.recv(CHUNK)):
                    pieces.append(piece)
                    got += len(piece)
                whole = b"".join(pieces)
                body, data = whole[:size], whole[size:]
                with self._lock:
                    self.heads.append(head)
                    self.bodies.append(body)
                answer = self._answer(head, body)
                connection.sendall(answer)
                if LENGTH.search(answer.partition(b"\r\n\r\n")[0]) is None:
                    return  # the end of the connection is the end of the answer


def answered(head: bytes, body: bytes) -> bytes:
    """Answer as a chat server does: a list of models, or a short answer."""
    listing = {"object": "list", "data": [{"id": "m", "object": "model"}]}
    return of_json(listing if head.startswith(b"GET ") else ANSWERED)


def of_json(value: Any, status: str = "200 OK", *more: str) -> bytes:
    """Return a whole answer; `more` are header lines."""
    body = json.dumps(value).encode()
    lines = [
        f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}",
        *more,
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(slots=True)
class Served:
    """A running `ullage serve`: its port, its process, what it has written."""

    port: int
    pid: int
    folder: Path
    _process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything that it wrote, output and log."""
        return (self.folder / "log").read_text("utf-8", "replace")

    @property
    def stored(self) -> bytes:
        """The bytes of its store, with what SQLite keeps beside it."""
        return b"".join(path.read_bytes() for path in sorted(self.folder.glob("proxy.db*")))

    def memory(self, kind: str = "VmHWM") -> int:
        """Return MB of memory: `VmHWM` at most so far, `VmRSS` now (proc(5))."""
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        found = re.search(rf"{kind}:\s*(\d+) kB", status)
        assert found is not None
        return int(found[1]) // 1024

    def lives(self) -> bool:
        """Whether it answers."""
        token = self.folder / "token"
        more = [f"x-ullage-token: {token.read_text()}"] if token.exists() else []
        return ask(self.port, request("GET", "/healthz", b"", *more)).status == 200


@contextmanager
def serving(
    folder: Path, upstreams: Sequence[str | Mapping[str, Any]], **settings: Any
) -> Iterator[Served]:
    """Run `ullage serve` as its users do, with a store in `folder`, until the block ends."""
    tables = [
        {"name": f"up{n}", "base_url": one} if isinstance(one, str) else dict(one)
        for n, one in enumerate(upstreams)
    ]
    own = {"store": f"sqlite:{folder / 'proxy.db'}", "port": 0, "drain_s": 2}
    (folder / "serve.toml").write_text(
        "\n".join(_toml({**own, **settings}, tables)),
        "utf-8",
    )
    if settings.get("tokens"):
        (folder / "token").write_text(next(iter(settings["tokens"].values())), "ascii")
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "PYTHONPATH")
        if name in os.environ
    }
    env = {**kept, "ULLAGE_CACHE_DIR": str(folder), "ULLAGE_CONFIG": str(folder / "none.toml")}
    (folder / "none.toml").write_text("", "utf-8")
    (folder / "sitecustomize.py").write_text(CANDID, "utf-8")
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), env.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "ullage.cli.main", "serve", "--config"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(folder / "serve.toml")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=folder,
        )  # fmt: skip
        try:
            yield Served(_port(process, folder), process.pid, folder, process)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _toml(values: Mapping[str, Any], upstreams: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "[serve]"
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    rules = values.get("rules", ())
    plain = {k: v for k, v in values.items() if k not in tables and k != "rules"}
    yield from (f"{k} = {json.dumps(v)}" for k, v in plain.items())
    for name, table in tables.items():
        yield f"[serve.{name}]"
        yield from (f"{k} = {json.dumps(v)}" for k, v in table.items())
    for name, one in (*(("rules", r) for r in rules), *(("upstreams", u) for u in upstreams)):
        yield f"[[serve.{name}]]"
        yield from (f"{k} = {json.dumps(v)}" for k, v in one.items())


def _port(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Return the port that a server says it listens on, once it answers."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S * 50)):
        found = LISTENING.search((folder / "log").read_text("utf-8", "replace"))
        if found is not None:
            with contextlib.suppress(OSError), Line(int(found[1])) as line:
                line.send(request("GET", "/nowhere"))
                if line.read():
                    return int(found[1])
        if process.poll() is not None:
            break
        pause.wait(0.02)
    raise AssertionError((folder / "log").read_text("utf-8", "replace"))
