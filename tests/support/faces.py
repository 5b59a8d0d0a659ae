"""The faces of ullage, each as a person would use it: one turn after the other, with restarts.

A face keeps what it learned where it would for its users: in a store and a cache folder, or in
the log of a session. A restart leaves only that. The real OpenAI SDK and a real process are behind
them.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, Protocol

import openai

from tests.proxy.serving import proxied
from tests.support.casks import MODEL, Cask
from ullage import Agent, Guard, Provider, Session, open_log, wrap
from ullage.config.settings import Settings
from ullage.core.guard.events import Compacted, ContextPressure, Event, Notice
from ullage.core.session.log.render import render_tools
from ullage.core.session.permissions import Posture
from ullage.core.tokens.gauge import STANDARD
from ullage.runtime import Runtime
from ullage.storage import open_store
from ullage.tools import Executor

SYSTEM: Final = {"role": "system", "content": "You keep the log of a sailing ship. Be brief."}


NOTICE: Final = re.compile(r"Context window at (\d+) %")

Band = tuple[int, int]


class Telling:
    """What a face told: `told` are sentences in order, `sizes` what the server counted of answered
    requests beside the band that ullage had for them.
    """

    def __init__(self, server: Cask) -> None:
        self.told: list[str] = []
        self.sizes: list[tuple[int, Band]] = []
        self._band: Band | None = None
        self._server = server

    def count_repeated(self) -> int:
        """Return how often a tier was told again without a compaction in between."""
        seen: set[str] = set()
        repeated = 0
        for text in self.told:
            if text.strip().startswith("compacted"):
                seen.clear()
            if found := NOTICE.search(text):
                tier = STANDARD.tier(int(found[1]) / 100)
                repeated += tier in seen
                seen.add(tier)
        return repeated

    def note_pressure(self, best: int | None, ratio: float | None, window: int | None) -> None:
        """Note the band of the request that is about to be sent; the best value is its middle."""
        if best is not None and ratio is not None and window is not None:
            high = math.ceil(ratio * window)
            self._band = (2 * best - high, high)

    def note_answer(self) -> None:
        """Note what the server counted of the request that was just answered."""
        if self._band is not None and self._server.sent[-1] not in self._server.cut:
            self.sizes.append((self._server.sent[-1], self._band))
        self._band = None


class Face(Protocol):
    """A way to use ullage."""

    told: list[str]
    sizes: list[tuple[int, Band]]

    def count_repeated(self) -> int:
        """Return how often a tier was told again."""
        ...

    def say(self, text: str) -> None:
        """Say something and wait for the answer; raises where there is none."""
        ...

    def restart(self) -> None:
        """Forget everything that is not on disk."""
        ...

    def close(self) -> None:
        """Let go of what runs."""
        ...


class _Client(Telling):
    """What faces of the SDK share: the history that its caller keeps."""

    def __init__(self, server: Cask, folder: Path) -> None:
        super().__init__(server)
        self._folder = folder
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
        if isinstance(event, Compacted):
            self.told.append("compacted")
        if isinstance(event, ContextPressure) and event.phase == "prepared":
            found = event.assessment
            self.note_pressure(found.input_tokens, found.ratio, found.window_tokens)

    def say(self, text: str) -> None:
        self._history.append({"role": "user", "content": text})
        made = self._send()
        self.note_answer()
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


class Acting(Telling):
    """`Agent` on a session of a log."""

    def __init__(self, server: Cask, folder: Path) -> None:
        super().__init__(server)
        self._folder = folder
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
        if event.type == "status" and "text" in event.data:
            self.told.append(event.data["text"])
        if event.type == "context_pressure" and event.data["phase"] == "prepared":
            found = (event.data.get(name) for name in ("input_tokens", "ratio", "window_tokens"))
            self.note_pressure(*found)

    def say(self, text: str) -> None:
        ended = self._agent.run(self._session, text)
        if not ended.ok:
            raise AssertionError(f"{ended.reason}: {ended.error}")
        self.note_answer()

    def restart(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self._session.close()
        self._log.close()


class Typed(Telling):
    """`ullage run`, a process for each turn."""

    def __init__(self, server: Cask, folder: Path) -> None:
        super().__init__(server)
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


FACES: Final[Mapping[str, Callable[[Cask, Path], Face]]] = {
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
