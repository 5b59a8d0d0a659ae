"""What one turn of an agent and one request of the proxy write, on PostgreSQL and on SQLite.

A turn is run by the agent against a scripted model server, a request goes through `ullage serve`:
what is counted are the statements of the product, not copies of them.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.scale.counters import Counters, subtract
from tests.agent.acting import agent, called, said, scripted
from tests.proxy.sockets import Behind, ask, of_json, request, serving
from tests.support.faults import Answer
from tests.support.postgres import Server
from ullage.agent import Session
from ullage.storage import open_log

WORD: Final = "the gauge of cask 4711 reads 12.5 at line 88 "
NAMES: Final = ("the", "file", "error", "return", "gauge", "cask", "line", "def", "self", "import")
SESSIONS: Final = 20
WARM: Final = 3


@dataclass(frozen=True)
class Shape:
    """A turn: calls of tools one after the other, the bytes of each result, turns a session."""

    calls: int
    result_bytes: int
    turns: int = 3
    held_out: bool = False

    @property
    def name(self) -> str:
        """How it is called in tables."""
        if not self.calls:
            return "no call"
        return f"{self.calls} call{'s'[: self.calls != 1]} of {self.result_bytes:,} B"


SHAPES: Final = (
    Shape(0, 0),
    Shape(1, 500),
    Shape(1, 4_000),
    Shape(3, 2_000),
    Shape(6, 1_000),
    Shape(4, 6_000, held_out=True),
)
"""The last one is left out of the fit and predicted by it."""


def make_text(size: int, seed: int) -> str:
    """Return so many bytes of words and numbers, which compress as texts do: to about a half."""
    chance, text = random.Random(seed), ""
    while len(text) < size:
        text += f"{chance.choice(NAMES)}_{chance.getrandbits(24):x} "
        text += "\n" if chance.random() < 0.1 else ""
    return text[:size]


def make_script(shape: Shape, sessions: int) -> list[Answer]:
    """Return the answers of the model for all turns."""
    answers: list[Answer] = []
    for _ in range(sessions * shape.turns):
        answers += [
            called(("read", {"path": f"f{n}.txt"}), text="I look.", prompt=100 + n)
            for n in range(shape.calls)
        ]
        answers.append(said("The cask holds seven gauges, and line 88 names them. " * 4, 200))
    return answers


def run_turns(url: str, shape: Shape, sessions: int) -> dict[str, Any]:
    """Run turns on a log; return seconds a turn, events and bytes of data a turn."""
    with tempfile.TemporaryDirectory() as folder, scripted(*make_script(shape, sessions)) as model:
        workspace = Path(folder)
        for n in range(shape.calls):
            (workspace / f"f{n}.txt").write_text(make_text(shape.result_bytes, n))
        driver = agent(model, workspace, window=400_000)
        events = size = 0
        with closing(open_log(url)) as log:
            begun = time.perf_counter()
            for _ in range(sessions):
                with Session.create(log) as session:
                    for _ in range(shape.turns):
                        done = driver.run(session, "Which gauge is at line 88?" + " Say it." * 10)
                        assert done.ok, done
                    name = session.name
                made = log.read(name)[1:]
                events += len(made)
                size += sum(event.text_bytes for event in made)
            took = time.perf_counter() - begun
    turns = sessions * shape.turns
    return {"seconds": took / turns, "events": events / turns, "data_bytes": size / turns}


def measure_postgres(server: Server, shape: Shape, sessions: int = SESSIONS) -> dict[str, Any]:
    """Return what a turn of this shape makes PostgreSQL write."""
    url = server.created()
    run_turns(url, shape, WARM)
    counters = Counters(server, url)
    with closing(counters):
        with counters.telling() as statements:
            run_turns(url, shape, WARM)
        before = counters.read()
        shown = run_turns(url, shape, sessions)
        spent = subtract(counters.read(), before)
    turns = sessions * shape.turns
    return {
        **shown,
        "shape": shape.name,
        "calls": shape.calls,
        "result_bytes": shape.result_bytes,
        "held_out": shape.held_out,
        "turns": turns,
        "statements": {k: v / (WARM * shape.turns) for k, v in sorted(statements.items())},
        "spent": scale(spent, 1 / turns),
    }


def scale(value: Any, factor: float) -> Any:
    """Return nested counts times a factor."""
    if isinstance(value, dict):
        return {key: scale(one, factor) for key, one in value.items()}
    return value * factor


def measure_sqlite(shape: Shape, folder: Path, sessions: int = SESSIONS) -> dict[str, Any]:
    """Return what a turn of this shape makes SQLite write to disk, by the process's own count."""
    path = folder / f"{shape.calls}-{shape.result_bytes}.db"
    run_turns(f"sqlite://{path}", shape, WARM)
    size, written = path.stat().st_size, count_written()
    shown = run_turns(f"sqlite://{path}", shape, sessions)
    turns = sessions * shape.turns
    grown = path.stat().st_size - size
    spent = {"written": (count_written() - written) / turns, "grown": grown / turns}
    return {**shown, "shape": shape.name, "spent": spent}


def count_written() -> int:
    """Return how many bytes this process had written to disks, by proc_pid_io(5)."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def measure_proxy(server: Server, tokens: int, rounds: int) -> dict[str, Any]:
    """Return what requests of growing conversations make the proxy write to PostgreSQL.

    `tokens` is the window that the proxy is told of; a small one makes it compact.
    """
    url = server.created()
    counters = Counters(server, url)
    with closing(counters), tempfile.TemporaryDirectory() as folder, Behind(_answer) as behind:
        place = Path(folder)
        with counters.telling() as statements, _proxy(place, url, behind, tokens) as port:
            _talk(port, 2, rounds, "told")
        counters.ask("CHECKPOINT")
        before = counters.read()
        with _proxy(place, url, behind, tokens) as port:
            begun = time.perf_counter()
            _talk(port, SESSIONS, rounds, "counted")
            took = time.perf_counter() - begun
        spent = subtract(counters.read(), before)
    requests = SESSIONS * rounds
    return {
        "window": tokens,
        "requests": requests,
        "seconds": took / requests,
        "statements": {k: v / (2 * rounds) for k, v in sorted(statements.items())},
        "spent": scale(spent, 1 / requests),
    }


@contextmanager
def _proxy(folder: Path, url: str, behind: Behind, tokens: int) -> Iterator[int]:
    upstream = {"name": "up", "base_url": f"{behind.url}/v1"}
    rule = {"model": "*", "window": tokens, "policy": "ladder"}
    with serving(folder, [upstream], store=url, rules=[rule]) as served:
        yield served.port


def _answer(head: bytes, body: bytes) -> bytes:
    if head.startswith(b"GET "):
        return of_json({"object": "list", "data": [{"id": "m", "object": "model"}]})
    prompt = max(len(body) // 4, 1)
    message = {"role": "assistant", "content": "Seven casks stand in the cellar. " * 6}
    usage = {"prompt_tokens": prompt, "completion_tokens": 40, "total_tokens": prompt + 40}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return of_json({"object": "chat.completion", "choices": [choice], "usage": usage})


def _talk(port: int, conversations: int, rounds: int, mark: str) -> None:
    for number in range(conversations):
        messages: list[dict[str, str]] = []
        for nth in range(rounds):
            text = f"{mark} {number} asks {nth}: {WORD * 40}"
            messages.append({"role": "user", "content": text})
            body = json.dumps({"model": "m", "messages": messages}).encode()
            more = ("content-type: application/json",)
            reply = ask(port, request("POST", "/v1/chat/completions", body, *more))
            assert reply.status == 200, reply.body[:300]
            said_back = json.loads(reply.body)["choices"][0]["message"]["content"]
            messages.append({"role": "assistant", "content": said_back})


def time_calls(work: Callable[[], object], count: int) -> list[float]:
    """Return the seconds of so many calls, sorted."""
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return sorted(took)
