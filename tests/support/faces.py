"""The faces of ullage, each as a person would use it: one turn after the other, with restarts.

A face keeps what it learned where it would for its users: in a store and a cache folder, or in the
log of a session. A restart leaves only that. The real OpenAI SDK and a real process are behind them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, Protocol

import openai

from tests.proxy.serving import proxied
from tests.support.casks import MODEL, Cask
from ullage import Agent, Guard, Provider, Session, open_log, wrap
from ullage.config.settings import Settings
from ullage.core.guard.events import ContextPressure, Event, Notice
from ullage.core.session.log.render import render_tools
from ullage.core.session.permissions import Posture
from ullage.runtime import Runtime
from ullage.storage import open_store
from ullage.tools import Executor

SYSTEM: Final = {"role": "system", "content": "You keep the log of a sailing ship. Be brief."}


class Face(Protocol):
    """A way to use ullage: `told` are the notices that people saw."""

    told: list[str]
    pressures: list[ContextPressure]

    def say(self, text: str) -> None:
        """Say something and wait for the answer; raises where there is none."""
        ...

    def restart(self) -> None:
        """Forget everything that is not on disk."""
        ...

    def close(self) -> None:
        """Let go of what runs."""
        ...


class _Client:
    """What faces of the SDK share: the history that its caller keeps."""

    def __init__(self, server: Cask, folder: Path) -> None:
        self.told: list[str] = []
        self.pressures: list[ContextPressure] = []
        self._server, self._folder = server, folder
        self._history: list[Any] = [SYSTEM]
        specs = Executor(folder).specs(Posture())
        self._tools: list[Any] = list(render_tools(specs, "openai_chat"))
        self._stack = ExitStack()
        self._open()

    def _open(self) -> None:
        raise NotImplementedError

    def _send(self) -> Any:
        raise NotImplementedError

    def _runtime(self) -> Runtime:
        store = f"sqlite:{self._folder / 'store.db'}"
        return Runtime(settings=Settings(store=store, cache_dir=str(self._folder)))

    def _client(self, url: str) -> openai.OpenAI:
        made = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
        return self._stack.enter_context(closing(made))

    def _hear(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.told.append(event.text)
        if isinstance(event, ContextPressure):
            self.pressures.append(event)

    def say(self, text: str) -> None:
        self._history.append({"role": "user", "content": text})
        made = self._send()
        self._history.append(made.choices[0].message.model_dump(exclude_none=True))

    def restart(self) -> None:
        self.close()
        self._stack = ExitStack()
        self._open()

    def close(self) -> None:
        self._stack.close()


class Library(_Client):
    """`Guard.call`."""

    def _open(self) -> None:
        runtime = self._runtime()
        self._bare = self._client(self._server.url)
        self._guard = Guard(MODEL, base_url=self._server.url, runtime=runtime, on_event=self._hear)
        self._stack.callback(runtime.store.close)

    def _send(self) -> Any:
        create = self._bare.chat.completions.create
        return self._guard.call(create, self._history, tools=self._tools)


class Wrapped(_Client):
    """`wrap`."""

    def _open(self) -> None:
        runtime = self._runtime()
        bare = self._client(self._server.url)
        self._wrapped: Any = wrap(bare, runtime=runtime, on_event=self._hear)
        self._stack.callback(runtime.store.close)

    def _send(self) -> Any:
        create = self._wrapped.chat.completions.create
        return create(model=MODEL, messages=self._history, tools=self._tools)


class Relayed(_Client):
    """The proxy, in front of the server."""

    def _open(self) -> None:
        store = open_store(f"sqlite:{self._folder / 'store.db'}")
        self._stack.callback(store.close)
        upstream = self._server.url.removesuffix("/v1")
        runtime = Runtime(settings=Settings(cache_dir=str(self._folder)))
        proxy = proxied(upstream, store=store, rules=(), runtime=runtime)
        self._behind = self._client(self._stack.enter_context(proxy).url + "/v1")

    def _send(self) -> Any:
        create: Any = self._behind.chat.completions.create
        return create(model=MODEL, messages=self._history, tools=self._tools)


class Acting:
    """`Agent` on a session of a log."""

    def __init__(self, server: Cask, folder: Path) -> None:
        self.told: list[str] = []
        self.pressures: list[ContextPressure] = []
        self._server, self._folder = server, folder
        (folder / "work").mkdir()
        self._begun = False
        self._open()

    def _open(self) -> None:
        runtime = Runtime(settings=Settings(cache_dir=str(self._folder / "cache")))
        self._log = open_log(f"sqlite:{self._folder / 'state' / 'log.db'}")
        provider = Provider(MODEL, self._server.url)
        self._agent = Agent(provider, workspace=self._folder / "work", runtime=runtime)
        make = Session if self._begun else Session.create
        self._session = make(self._log, "voyage")
        self._begun = True
        self._session.hear(self._hear)

    def _hear(self, event: Any) -> None:
        if event.type == "status":
            self.told.append(event.data["text"])

    def say(self, text: str) -> None:
        ended = self._agent.run(self._session, text)
        if not ended.ok:
            raise AssertionError(f"{ended.reason}: {ended.error}")

    def restart(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self._session.close()
        self._log.close()


class Typed:
    """`ullage run`, a process for each turn."""

    def __init__(self, server: Cask, folder: Path) -> None:
        self.told: list[str] = []
        self.pressures: list[ContextPressure] = []
        (folder / "work").mkdir()
        self._command = [
            *(sys.executable, "-m", "ullage", "run", "--base-url", server.url, "--model", MODEL),
            *("--store", f"sqlite:{folder / 'state' / 'log.db'}"),
            *("--workspace", str(folder / "work")),
        ]
        self._session: list[str] = []
        home = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        self._environment = {**os.environ, **home}

    def say(self, text: str) -> None:
        done = subprocess.run(
            [*self._command, *self._session, text],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
        self.told += done.stderr.splitlines()
        if not self._session:
            self._session = ["--session", _find_session(done.stderr)]

    def restart(self) -> None:
        """Do nothing: each turn is a new process."""

    def close(self) -> None:
        """Do nothing."""


def _find_session(told: str) -> str:
    return next(line.split()[1] for line in told.splitlines() if line.startswith("session "))


FACES: Final = {
    "library": Library,
    "wrap": Wrapped,
    "proxy": Relayed,
    "agent": Acting,
    "cli": Typed,
}


def opened(name: str, server: Cask, folder: Path) -> Iterator[Face]:
    """Yield a face; close it behind."""
    with closing(FACES[name](server, folder)) as face:
        yield face
