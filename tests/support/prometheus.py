"""A real Prometheus for tests: on PATH, or Debian's package, unpacked and not installed.

It listens on the loopback, reads one target every half second, and ends with the block.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import platformdirs

PACKAGE: Final = "prometheus"
START_TIMEOUT_S: Final = 60.0
PAUSE_S: Final = 0.1

CONFIG: Final = """\
global:
  scrape_interval: 500ms
  evaluation_interval: 500ms
rule_files: ["{rules}"]
scrape_configs:
  - job_name: ullage
    static_configs: [{{targets: ["{target}"]}}]
"""


class PrometheusError(Exception):
    """Report a Prometheus that cannot be had, or did not start."""


@dataclass(frozen=True)
class Programs:
    """The server, and the tool that checks rules."""

    server: Path
    tool: Path


def obtain(cache_dir: Path | None = None) -> Programs:
    """Return the programs. Raises PrometheusError where there is no package to be had."""
    found = shutil.which("prometheus"), shutil.which("promtool")
    if found[0] and found[1]:
        return Programs(Path(found[0]), Path(found[1]))
    home = (cache_dir or platformdirs.user_cache_path("ullage", appauthor=False)) / PACKAGE
    made = Programs(home / "usr/bin/prometheus", home / "usr/bin/promtool")
    if not made.tool.exists():
        _unpack(home)
    return made


def _unpack(home: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise PrometheusError("neither Prometheus nor Debian's package manager is on PATH")
    home.mkdir(parents=True, exist_ok=True)
    _run(["apt-get", "--quiet", "download", PACKAGE], home)
    packed = next(home.glob("*.deb"))
    _run(["dpkg-deb", "--extract", packed.name, "."], home)
    packed.unlink()


def _run(command: Sequence[str], home: Path) -> None:
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PrometheusError(f"{command[0]}: {done.stderr.strip()[-400:]}")


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def ask(self, expression: str) -> Any:
        """Return the result of an expression. Raises PrometheusError for one that is not valid."""
        return self._get(f"query?query={quote(expression)}")["result"]

    def list_alerts(self) -> dict[str, str]:
        """Return the alerts that are raised, each with its state."""
        return {a["labels"]["alertname"]: a["state"] for a in self._get("alerts")["alerts"]}

    def wait_for(self, done: Callable[[Prometheus], Any]) -> Any:
        """Return what `done` finds, once that is true. Raises PrometheusError if it takes long."""
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            found = done(self)
            if found:
                return found
            time.sleep(PAUSE_S)
        raise PrometheusError(f"waited {START_TIMEOUT_S:.0f} s for {done.__name__}")

    def _get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise PrometheusError(error.read().decode()) from error


@contextmanager
def running(programs: Programs, rules: Path, target: str, folder: Path) -> Iterator[Prometheus]:
    """Run a server that reads `target` (HOST:PORT) by `rules`, while the block lasts."""
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(rules=rules, target=target))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (folder / "prometheus.log").open("w") as log:
        child = subprocess.Popen(
            [
                programs.server,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            _wait_until_ready(url, child, folder / "prometheus.log")
            yield Prometheus(url)
        finally:
            child.terminate()
            child.wait(20)


def _wait_until_ready(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while child.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/-/ready"):
                return
        except OSError:
            time.sleep(PAUSE_S)
    raise PrometheusError(f"Prometheus is not ready: {log.read_text()[-1000:]}")
