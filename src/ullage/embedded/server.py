"""A real llama.cpp server as a supervised child process on the loopback interface.

The C++ server comes from the `xllamacpp` wheel and runs in `child`. This module starts it, waits
until it answers, and makes sure that it is gone afterwards. It knows nothing of windows,
conversations or the rest of ullage. Linux only.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from ullage.core.errors import ConfigurationError, ProviderError
from ullage.core.errors.extras import explain_missing
from ullage.embedded import child
from ullage.embedded.launch import Launch

_GRACE_S = 2.0
_HEALTH_TIMEOUT_S = 2.0
_HEALTH_PAUSE_S = 0.01
_TAIL_BYTES = 8192
_TAIL_LINES = 12


class Server:
    """Run one model behind llama.cpp's OpenAI-compatible HTTP API.

    A context manager: entering starts the child and returns once it answers, leaving stops it.
    All methods may be called from any thread. The child also ends when this process does,
    however it dies.
    """

    def __init__(self, model: Path, launch: Launch | None = None) -> None:
        self.model = model
        self.launch = launch or Launch()
        self._starting = threading.Lock()
        self._state = threading.Lock()
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server unless it runs, wait until it is healthy, and return it.

        Raises ConfigurationError when the model or the `embedded` extra is missing, and
        ProviderError, with the end of the server's log, when it does not become healthy.
        """
        with self._starting:
            if self.alive:
                return self
            self.stop()
            self._check()
            running = _Running(self.model, self.launch)
            atexit.register(self.stop)
            with self._state:
                self._running = running
            try:
                running.wait_until_healthy()
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """End the server: SIGTERM, and SIGKILL 2 s later. Does nothing if it is not running."""
        with self._state:
            running, self._running = self._running, None
        if running is not None:
            atexit.unregister(self.stop)
            running.end()

    @property
    def alive(self) -> bool:
        """Tell whether the child process runs."""
        with self._state:
            return self._running is not None and self._running.process.poll() is None

    @property
    def pid(self) -> int:
        """The child's process id. Raises ProviderError when the server was not started."""
        return self._demand().process.pid

    @property
    def base_url(self) -> str:
        """The base URL for OpenAI clients, `http://127.0.0.1:PORT/v1`.

        Raises ProviderError when the server was not started.
        """
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        """The address without `/v1`, under which `/health` and `/props` are.

        Raises ProviderError when the server was not started.
        """
        return self._demand().address

    def log_tail(self) -> str:
        """Return the last lines that the server wrote, or "" when it is not running."""
        with self._state:
            return "" if self._running is None else self._running.tail()

    def _demand(self) -> _Running:
        with self._state:
            if self._running is None:
                raise ProviderError(
                    f"the embedded server for {self.model.name} is not running; call start(), or "
                    f"use it as a context manager"
                )
            return self._running

    def _check(self) -> None:
        demand_engine()
        if not self.model.is_file():
            raise ConfigurationError(
                f"there is no model file at {self.model}; give the path of a GGUF, or take "
                f"ullage.embedded.smollm2()"
            )


def demand_engine() -> None:
    """Raise ConfigurationError if the package with the server is missing."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise explain_missing("the embedded server (Linux with glibc)", "xllamacpp")


class _Running:
    """One child process from its start to its end."""

    def __init__(self, model: Path, launch: Launch) -> None:
        self.address = ""
        self._launch = launch
        self._name = model.name
        self._owner = os.getpid()
        self._ending = threading.Lock()
        self._log = _open_log(launch.log)
        # By path and with -P instead of -m, so that the child imports nothing of ullage.
        command = [sys.executable, "-P", child.__file__]
        # Without PASSIVE, OpenMP threads spin at their barriers: on two busy cores the server was
        # 30 times slower (4.3 against 134 tokens/s). Without NO_BACKTRACE a failed assertion in
        # llama.cpp attaches gdb to the dying process.
        env = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "GGML_NO_BACKTRACE": "1"}
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                # The parent handles a Ctrl-C at the terminal.
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise ProviderError(
                f"cannot start the embedded server with {sys.executable}: {error}"
            ) from error
        self._send(model, launch)

    def _send(self, model: Path, launch: Launch) -> None:
        """Send the options through the pipe: an API key must not appear in `ps`."""
        wishes = {
            "parent": self._owner,
            "model": str(model.absolute()),
            "port": launch.port,
            "window": launch.window,
            "slots": launch.slots,
            "unified_pool": launch.unified_pool,
            "batch": launch.batch,
            "threads": launch.processors,
            "alias": launch.alias,
            "chat_template": launch.chat_template,
            "api_key": launch.api_key,
            "trained": launch.trained if launch.stretch > 1 else None,
            "stretch": launch.stretch,
        }
        pipe = self.process.stdin
        assert pipe is not None  # noqa: S101 - Popen was given PIPE
        try:
            # The pipe stays open: its end tells the child that this process died.
            pipe.write(json.dumps(wishes).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            # The child died at once; `wait_until_healthy` detects that and reports the cause.
            return

    def wait_until_healthy(self) -> None:
        """Return once GET /health answers 200. Raises ProviderError."""
        deadline = time.monotonic() + self._launch.start_timeout_s
        self.address = self._read_address(deadline)
        host = self.address.removeprefix("http://")
        while not _healthy(host):
            if self.process.poll() is not None:
                raise self._explain_exit()
            if time.monotonic() > deadline:
                raise self._late("listens but is not healthy")
            time.sleep(_HEALTH_PAUSE_S)

    def _read_address(self, deadline: float) -> str:
        """Read the line that the child writes when it listens; the pipe ends if the child dies."""
        pipe = self.process.stdout
        assert pipe is not None  # noqa: S101 - Popen was given PIPE
        line = b""
        with pipe:
            while not line.endswith(b"\n"):
                left = deadline - time.monotonic()
                ready, _, _ = select.select([pipe], [], [], max(left, 0.0))
                if not ready:
                    raise self._late("has not loaded its model")
                block = os.read(pipe.fileno(), 4096)
                if not block:
                    self.process.wait()
                    raise self._explain_exit()
                line += block
        return line.decode().strip()

    def _explain_exit(self) -> ProviderError:
        tail = self.tail()
        fix = "read its last words below"
        for phrase, known in _CAUSES:
            if phrase in tail:
                fix = known
                break
        return ProviderError(
            f"the embedded server for {self._name} (port {self._launch.port or 'any'}, window "
            f"{self._launch.window}) ended with exit code {self.process.returncode} while it "
            f"started: {fix}\n{tail}"
        )

    def _late(self, state: str) -> ProviderError:
        return ProviderError(
            f"the embedded server for {self._name} {state} after {self._launch.start_timeout_s:g} "
            f"s (start_timeout_s); give it longer, or a smaller model\n{self.tail()}"
        )

    def tail(self) -> str:
        """Return the last lines of the log, each indented by two spaces."""
        with self._ending:
            if self._log.closed or sys.platform == "win32":  # no server runs there
                return ""
            size = os.fstat(self._log.fileno()).st_size
            start = max(size - _TAIL_BYTES, 0)
            text = os.pread(self._log.fileno(), _TAIL_BYTES, start).decode(errors="replace")
        return "\n".join(f"  {line}" for line in text.strip().splitlines()[-_TAIL_LINES:])

    def end(self) -> None:
        """Terminate the child, kill it after the grace time, and release its resources."""
        # After a fork the copy of this object in the child owns nothing.
        if os.getpid() != self._owner:
            return
        with self._ending:
            self.process.terminate()
            try:
                self.process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            # Not stdout: a thread in start() may be waiting for its end, and closes it.
            if self.process.stdin is not None:
                # A child that died before it read its options left them in the buffer.
                with contextlib.suppress(BrokenPipeError):
                    self.process.stdin.close()
            self._log.close()


_CAUSES: tuple[tuple[str, str], ...] = (
    # E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 34867
    ("couldn't bind HTTP server socket", "the port is taken; choose another one, or 0 for any"),
    # ImportError: libgomp.so.1: cannot open shared object file: No such file or directory
    ("libgomp.so.1", "the system's libgomp is missing; install it (Debian: libgomp1)"),
    # E gguf_init_from_reader: invalid magic characters: 'junk', expected 'GGUF'
    ("invalid magic characters", "the model file is not a GGUF; fetch it again"),
    # E llama_model_load: error loading model: tensor 'output.weight' data is not within the file
    ("is not within the file", "the model file is cut short; fetch it again"),
)


def _open_log(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+b")
    except OSError as error:
        raise ConfigurationError(f"cannot write the server's log to {path}: {error}") from error


def _healthy(host: str) -> bool:
    """Ask once: 200 is healthy, 503 is still loading, no answer counts as not yet."""
    connection = http.client.HTTPConnection(host, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
