"""Other versions of ullage at work: taken from the repository, run as processes, on real stores.

`python -m tests.storage.versions` writes the fixtures in `versions/` again: what versions before
the last changes of the schemas left behind, with the lines that they exported.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.agent.acting import said
from tests.support import postgres
from tests.support.faults import FaultServer, closed_port
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).parents[2]
FIXTURES: Final = Path(__file__).with_name("versions")
OLDER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sqlite-2": "366e4bd3dc779b933057ca4e9c8816c90b3473b8",
        "postgresql-2": "366e4bd3dc779b933057ca4e9c8816c90b3473b8",
        "postgresql-3": "aae84add9d8359860deb2ff300e7c3bcbd4dd20f",
    }
)
"""By engine and version of its schema, the last commit that had it."""

CHAT: Final = "/v1/chat/completions"
WINDOW: Final = "3000"
WORDS: Final = "The cask by the north wall lost a litre, and nobody wrote down which valve it was. "
ASKED: Final = (
    "Which cask leaks?",
    "Never open the valve 17.",
    "How full is it?",
    "And today?",
    "So?",
)


def answering() -> FaultServer:
    """Return a model that says much, whatever it is asked; streamed or in one piece."""
    text = f"Cask 4. {WORDS * 40}"
    return FaultServer({f"POST {CHAT}": said(text, 900)})


@dataclass(frozen=True)
class Version:
    """A version by its source; `home` is its user's folder."""

    source: Path
    home: Path

    def run(
        self, *words: str, model: FaultServer | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its commands, on a model where one is given, to an exit code."""
        asked = [*words, "--model", "model", "--window", WINDOW, "--base-url"] if model else words
        command = [*asked, model.base_url] if model else asked
        done = subprocess.run(
            self.command(*command),
            env=self.environment(),
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "ullage", *words]

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ULLAGE")}
        return {**kept, "PYTHONPATH": str(self.source / "src"), "HOME": str(self.home)}


def unpack(commit: str, folder: Path) -> Version:
    """Return the version of a commit of this repository, its source put into a folder."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "src"], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder / "source", filter="data")
    (folder / "home").mkdir()
    return Version(folder / "source", folder / "home")


def write_log(version: Version, url: str, model: FaultServer) -> list[str]:
    """Have a version hold a session that is compacted, fork it, and go on in the fork.

    Return the names of both.
    """
    how = ("--store", url, "--no-tools")
    begun = json.loads(version.run("run", ASKED[0], "--json", *how, model=model).stdout)
    name = begun["session"]
    for text in ASKED[1:]:
        version.run("run", text, "--session", name, *how, model=model)
    version.run("fork", name, "--name", "branch", "--store", url)
    version.run("run", "Go on.", "--session", "branch", *how, model=model)
    return [name, "branch"]


def write_store(version: Version, url: str, model: FaultServer) -> list[dict[str, Any]]:
    """Have a version's proxy guard a conversation until it is compacted; return its messages."""
    history: list[dict[str, Any]] = []
    with closed_port() as port:
        pass
    words = ("serve", "--upstream", model.base_url, "--store", url, "--window", WINDOW)
    running = subprocess.Popen(
        version.command(*words, "--port", str(port), "--quiet"), env=version.environment()
    )
    try:
        root = f"http://127.0.0.1:{port}"
        eventually(lambda: is_up(f"{root}/readyz"))
        for text in ASKED:
            history.append({"role": "user", "content": f"{text} {WORDS * 12}"})
            post(root + CHAT, {"model": "model", "messages": history})
            history.append({"role": "assistant", "content": f"Cask 4. {WORDS * 40}"})
    finally:
        running.terminate()
        running.wait(20)
    return history


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def post(url: str, body: Any) -> Mapping[str, str]:
    """Send a request and return the headers of its answer."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()
        return dict(answer.headers)


def keep(name: str, server: postgres.Server, model: FaultServer) -> None:
    """Have an older version write a fixture: its stores, its exports, the proxy's conversation."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        version = unpack(OLDER[name], folder)
        url = server.created() if name.startswith("postgresql") else f"sqlite:{folder}/ullage.db"
        sessions = write_log(version, url, model)
        history = write_store(version, url, model)
        told = {"url": model.root_url, "written": time.time(), "messages": history}
        parts = {f"{n}.ndjson": version.run("export", n, "--store", url).stdout for n in sessions}
        parts["proxy.json"] = json.dumps(told)
        with zipfile.ZipFile(
            FIXTURES / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, True, 9
        ) as packed:
            for part, text in parts.items():
                packed.writestr(part, text)
            if url.startswith("sqlite:"):
                packed.write(folder / "ullage.db", "ullage.db")
            else:
                packed.writestr("dump.sql", dump(url))


def dump(url: str) -> str:
    """Return a database as statements; psql's own commands are left out."""
    program = postgres.obtain() / "bin" / "pg_dump"
    words = ("--schema=ullage", "--inserts", "--no-owner", "--dbname", url)
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True)
    return "".join(s for s in done.stdout.splitlines(keepends=True) if not s.startswith("\\"))


def main(names: Sequence[str]) -> None:
    """Write the fixtures of these names, or all."""
    FIXTURES.mkdir(exist_ok=True)
    with postgres.Server(postgres.obtain()) as server, answering() as model:
        for name in names or OLDER:
            keep(name, server, model)


if __name__ == "__main__":
    main(sys.argv[1:])
