"""A program in a real terminal: a pseudo-terminal that it controls, typed into and read from."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Self

TAKE = (
    "import fcntl, os, sys, termios; "
    "fcntl.ioctl(next(fd for fd in (0, 1, 2) if os.isatty(fd)), termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Make the terminal the session's own, so that Ctrl-C reaches it, and become the program."""

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[78])")


class Terminal:
    """A program in a terminal; `shown` is all that it has written there, escapes and all.

    `streams` are descriptors of files that take the place of the terminal. Then the terminal is
    still the one that the program was started from.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        rows: int = 24,
        columns: int = 80,
        **streams: int,
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE, *command],
            stdin=streams.get("stdin", slave),
            stdout=streams.get("stdout", slave),
            stderr=streams.get("stderr", slave),
            env={**environment, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""
        self._read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def until(self, pattern: str, seconds: float = 60.0) -> str:
        """Read on until the pattern shows; return what came, without escape sequences."""
        end = time.monotonic() + seconds
        while True:
            plain = ESCAPES.sub("", self.shown[self._read :])
            if re.search(pattern, plain):
                self._read = len(self.shown)
                return plain
            if time.monotonic() > end or not self._more(end - time.monotonic()):
                raise AssertionError(f"no {pattern!r} in what was shown:\n{plain[-4000:]}")

    def resize(self, rows: int, columns: int) -> None:
        """Change the size; the program is told by SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def rest(self, seconds: float = 60.0) -> str:
        """Read to the end of the program; return what came, without escape sequences."""
        end = time.monotonic() + seconds
        while self._more(end - time.monotonic()):
            pass
        assert self.process.wait(max(end - time.monotonic(), 1.0)) is not None
        plain = ESCAPES.sub("", self.shown[self._read :])
        self._read = len(self.shown)
        return plain

    def is_silent(self, seconds: float) -> bool:
        """Tell whether the program writes nothing for so long."""
        return not self._more(seconds)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._master, text.encode() + b"\n")

    def press(self, key: bytes) -> None:
        """Press a key: b'\\x03' is Ctrl-C, b'\\x04' Ctrl-D."""
        os.write(self._master, key)

    def kill(self) -> None:
        """End the program without a chance to do anything."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _more(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(seconds, 0.0))
        if not ready:
            return False
        try:
            came = os.read(self._master, 65_536)
        except OSError:  # Linux: the program has closed the terminal
            return False
        self.shown += came.decode("utf-8", "replace")
        return bool(came)
