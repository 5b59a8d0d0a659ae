"""A client's conversation through `ullage serve --demo`, turn by turn, as the proxy's log tells it.

Every turn is bounded in time. What a turn came to is what both sides say: the client's exit code
and last words, and the lines that the proxy wrote meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.clients.talkers import Talker

START_S: Final = 120.0
SETTLE_S: Final = 1.0
QUESTION: Final = "Turn {n}. Say in one sentence what a cooper does with {thing}."
NOTE: Final = " The note of the day says: the cellar was dry, the casks were full, nobody came."
"""What makes a question longer, again and again: 18 words."""
THINGS: Final = ("oak", "hoops", "fire", "staves", "reeds", "chalk", "an adze", "a croze", "water",
                 "iron")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of a turn; `lines` are the proxy's, `text` the client's last words."""

    number: int
    seconds: float
    ended: str
    text: str
    lines: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def answered(self) -> bool:
        """Whether the client ended well, with something to show."""
        return self.ended == "0" and bool(self.text)


class Proxy:
    """`ullage serve --demo` in a process of its own; its log is read as it grows."""

    def __init__(self, window: int, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "ullage.cli.main", "serve", "--demo", "--port", "0"]
        command += ["--window", str(window), "--store", "memory:", "--log-format", "json"]
        with log.open("w") as out:
            self._process = subprocess.Popen(command, stderr=out, start_new_session=True)
        self.url = self._listening()

    def _listening(self) -> str:
        limit = time.monotonic() + START_S
        while time.monotonic() < limit and self._process.poll() is None:
            found = re.search(r"listening on (http://\S+)", self._log.read_text())
            if found is not None:
                return found[1]
            time.sleep(0.1)
        raise RuntimeError(f"ullage serve did not start: {self._log.read_text()[-500:]}")

    def requests(self) -> list[Mapping[str, Any]]:
        """Return the POST requests that were written down so far."""
        lines = [line for line in self._log.read_text().splitlines() if line.startswith("{")]
        found = [json.loads(line) for line in lines]
        return [one for one in found if one.get("event") == "request" and one["method"] == "POST"]

    def end(self) -> None:
        """End it, and the model server with it."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(45)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)


@contextmanager
def serving(window: int) -> Iterator[Proxy]:
    """Run the proxy with a small model of that window behind it."""
    with tempfile.TemporaryDirectory(prefix="ullage-clients-") as folder:
        proxy = Proxy(window, Path(folder) / "log")
        try:
            yield proxy
        finally:
            proxy.end()


def talk(talker: Talker, proxy: Proxy, turns: int, turn_s: float, notes: int) -> Iterator[Turn]:
    """Hold a conversation, each question with so many notes behind it; yield each turn."""
    with tempfile.TemporaryDirectory(prefix="ullage-client-") as folder:
        home = Path(folder)
        talker.prepare(home, proxy.url)
        (home / "work").mkdir()
        environment = {
            "HOME": folder,
            "PATH": os.defpath,
            "TERM": "dumb",
            "NO_COLOR": "1",
            "OPENAI_API_KEY": "k",
            "LLM_USER_PATH": str(home / "llm"),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
            **talker.environment(proxy.url),
        }
        for number in range(turns):
            said = QUESTION.format(n=number + 1, thing=THINGS[number % len(THINGS)])
            said += NOTE * notes
            before, began = len(proxy.requests()), time.monotonic()
            command = talker.command(proxy.url, number, said)
            ended, text = _ran(command, home / "work", environment, turn_s)
            seconds = time.monotonic() - began
            time.sleep(SETTLE_S)
            yield Turn(number + 1, seconds, ended, text, tuple(proxy.requests()[before:]))


def _ran(
    command: list[str], folder: Path, environment: Mapping[str, str], turn_s: float
) -> tuple[str, str]:
    """Run a command to its end or its time-out; return how it ended, and its last words."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=turn_s)
        ended = str(process.returncode)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        ended = f"after {turn_s:g} s"
    words = re.sub(r"\x1b\[[0-9;]*m", "", out).split("\n")
    return ended, next((line.strip() for line in reversed(words) if line.strip()), "")
