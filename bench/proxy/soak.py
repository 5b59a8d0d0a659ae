"""`python -m bench.proxy.soak --minutes 30`: a real proxy under mixed traffic, its memory watched.

Short and long conversations, streams, clients that leave, large bodies for workers, a small window
that compacts; most conversations end after a few turns and others take their place, so that every
cache fills. Memory is that of the proxy's own process (RSS), and of its workers beside it (PSS),
every five seconds. The slope counts from the moment on at which twice as many conversations were
begun, and twice as much text was sent for the first time, as the largest caches hold, more of the
conversations are compacted than records of that stand in memory, and at least a third of the time
is over. It fails over 1 MB an hour. All goes over the loopback, at a bounded
pace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp

from bench.proxy.contenders import environment
from bench.proxy.processes import HOST, PROC, Program, free_port, list_tree, listening
from bench.proxy.rounds import slope
from ullage.storage.shelter import NEAR

STEP_S: Final = 5.0
LIMIT_MB_H: Final = 1.0
MOST_CONVERSATIONS: Final = 1_000
"""What the caches of conversations hold by default (`serve.cache_conversations`)."""

SHORT_OF: Final = 1.3
"""Conversations in a small window for each one that is compacted: three in four grow over it."""

MOST_TEXT: Final = 8 * 1024 * 1024
"""Characters that the largest cache of texts holds by default (`serve.cache_bytes`)."""

LINE: Final = 12
"""Words of a line: what is kept of lines and sentences is bounded by their number."""

CLIENTS: Final = 12
CONFIG: Final = """\
[serve]
port = {port}
store = "sqlite:{folder}/soak.db"
[[serve.upstreams]]
name = "fake"
base_url = "http://127.0.0.1:{upstream}"
[[serve.rules]]
model = "tight"
window = 3000
[[serve.rules]]
window = 256000
"""
WORDS: Final = (
    *("log", "test", "path", "error", "line", "call", "read", "write", "open", "close"),
    *("retry", "value", "of", "the", "it", "in"),
)
LARGE: Final = 300_000
"""Characters that make a body large enough for a worker."""


@dataclass(slots=True)
class Traffic:
    """What was sent so far; and the dice."""

    url: str
    pace_s: float
    dice: random.Random
    begun: int = 0
    tight: int = 0
    said: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        """Count one of a kind."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def say(self, words: int) -> str:
        """Return a text of so many words, in lines of which no two are the same."""
        self.said += words * 5
        dice = self.dice
        lines = range(0, words, LINE)
        return "\n".join(
            f"{dice.getrandbits(32):x} {' '.join(dice.choices(WORDS, k=LINE))}" for _ in lines
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory in MB some seconds after the start, conversations and characters until then.

    `tight` are conversations in a small window.
    """

    at_s: float
    rss: float
    children: float
    begun: int
    tight: int
    said: int


async def run_client(traffic: Traffic, session: aiohttp.ClientSession) -> None:
    """Hold conversations, one after the other, until cancelled."""
    dice = traffic.dice
    while True:
        kind = dice.choices(["short", "stream", "long", "tight", "large"], [60, 20, 8, 11, 1])[0]
        traffic.begun += 1
        traffic.tight += kind == "tight"
        turns = {"short": 1, "stream": 1, "large": 1}.get(kind) or dice.randint(4, 20)
        model = "tight" if kind == "tight" else "soak"
        said = [{"role": "user", "content": traffic.say(LARGE // 5 if kind == "large" else 60)}]
        for _ in range(turns):
            streams = kind == "stream" or dice.random() < 0.3
            leaves = streams and dice.random() < 0.2
            traffic.count(kind)
            body = {"model": model, "messages": said, "stream": streams, "max_tokens": 64}
            await send_request(traffic, session, body, leaves=leaves)
            said.append({"role": "assistant", "content": traffic.say(40)})
            said.append({"role": "user", "content": traffic.say(400 if kind == "long" else 150)})
            await asyncio.sleep(dice.expovariate(1 / traffic.pace_s))


async def send_request(
    traffic: Traffic, session: aiohttp.ClientSession, body: dict[str, Any], *, leaves: bool
) -> None:
    """Send one request; read its answer, or leave after the first piece of it."""
    try:
        async with session.post(f"{traffic.url}/v1/chat/completions", json=body) as answer:
            if leaves:
                await answer.content.readany()
                traffic.count("left")
                answer.close()
                return
            await answer.read()
            if answer.headers.get("x-ullage-compaction"):
                traffic.count("compacted")
            if answer.status != 200:
                traffic.count(f"status {answer.status}")
    except aiohttp.ClientError as error:
        traffic.count(type(error).__name__)


async def watch_proxy(
    program: Program, traffic: Traffic, minutes: float, samples: list[Sample]
) -> None:
    """Take samples until the time is over."""
    start = time.monotonic()
    while (at := time.monotonic() - start) < minutes * 60 and not program.ended:
        first, *children = list_tree(program.pid)
        held = sum(_read_mb(child, "smaps_rollup", "Pss:") for child in children)
        rss = _read_mb(first, "status", "VmRSS:")
        sent = (traffic.begun, traffic.tight, traffic.said)
        samples.append(Sample(round(at, 1), rss, held, *sent))
        if len(samples) % 12 == 1:
            now = samples[-1]
            print(f"{at / 60:5.1f} min  {now.rss:6.1f} MB  workers {now.children:6.1f} MB  "
                  f"{now.begun:,} conversations", flush=True)  # fmt: skip
        await asyncio.sleep(STEP_S)


def _read_mb(process: int, file: str, name: str) -> float:
    with suppress(OSError):
        for line in (PROC / str(process) / file).read_text("ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1000
    return 0.0


def is_full(sample: Sample, minutes: float) -> bool:
    """Tell whether every cache was full at a sample."""
    full = sample.begun >= 2 * MOST_CONVERSATIONS and sample.said >= 2 * MOST_TEXT
    full = full and sample.tight >= SHORT_OF * NEAR
    return full and sample.at_s >= minutes * 60 / 3


async def load_proxy(
    program: Program, port: int, options: argparse.Namespace
) -> tuple[list[Sample], Traffic]:
    """Load a proxy for the time that the options say."""
    rate = CLIENTS / options.rate
    traffic = Traffic(f"http://{HOST}:{port}", rate, random.Random(options.seed))
    samples: list[Sample] = []
    async with aiohttp.ClientSession(trust_env=False) as session:
        async with session.get(f"{traffic.url}/healthz") as answer:  # all is loaded by then
            await answer.read()
        clients = [asyncio.create_task(run_client(traffic, session)) for _ in range(CLIENTS)]
        try:
            await watch_proxy(program, traffic, options.minutes, samples)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
    return samples, traffic


def report(samples: list[Sample], traffic: Traffic, minutes: float) -> int:
    """Print what was seen; return the exit code."""
    full = [sample for sample in samples if is_full(sample, minutes)]
    print(", ".join(f"{count:,} {what}" for what, count in sorted(traffic.counts.items())))
    if len(full) < 12:
        print("too short: the caches were not full for a minute; give more --minutes")
        return 2
    rise = slope([(sample.at_s / 3600, sample.rss) for sample in full])
    print(
        f"{samples[0].rss:.1f} MB at the start, {full[0].rss:.1f} MB when the caches were full "
        f"({full[0].at_s / 60:.1f} min, {full[0].begun:,} conversations), {samples[-1].rss:.1f} MB "
        f"at the end, most {max(sample.rss for sample in samples):.1f} MB, workers at most "
        f"{max(sample.children for sample in samples):.1f} MB beside it"
    )
    print(f"slope {rise:+.2f} MB an hour over {(full[-1].at_s - full[0].at_s) / 60:.1f} minutes; "
          f"at most {LIMIT_MB_H:g} is allowed")  # fmt: skip
    return int(rise > LIMIT_MB_H)


def soak(options: argparse.Namespace, folder: Path) -> int:
    """Start an upstream and a proxy, load them, report."""
    env = environment(folder)
    (folder / "config.toml").touch()
    upstream = [sys.executable, "-m", "bench.proxy.upstream"]
    with Program(upstream, folder / "upstream.txt", None, env) as fake:
        behind, port = json.loads(fake.line())["port"], free_port()
        config = folder / "serve.toml"
        config.write_text(CONFIG.format(port=port, folder=folder, upstream=behind), "utf-8")
        words = ["-m", "ullage", "serve", "--config", str(config), "-q"]
        log = folder / "serve.txt"
        with Program([sys.executable, *words], log, None, env, heard=False) as proxy:
            if not listening(proxy, port, 60.0):
                print(log.read_text("utf-8"))
                return 2
            samples, traffic = asyncio.run(load_proxy(proxy, port, options))
    if options.write is not None:
        rows = [[s.at_s, s.rss, s.children, s.begun, s.said] for s in samples]
        options.write.write_text(json.dumps(rows), "utf-8")
    return report(samples, traffic, options.minutes)


def main() -> None:
    """Parse the arguments and soak."""
    parser = argparse.ArgumentParser(prog="python -m bench.proxy.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=25.0, help="requests a second, about (25)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help="a file for the samples, as JSON")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="ullage-soak-") as folder:
        sys.exit(soak(options, Path(folder)))


if __name__ == "__main__":
    main()
