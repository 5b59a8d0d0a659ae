"""`make bench-live`: what the live pages cost, and whether they stay smooth under load.

A real `ullage serve` runs over a scripted upstream, with 2,000 conversations and about 50 requests
a second. Blocks of requests with five viewers and without any alternate and are timed. A real
Chromium counts its frames.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.pages.watching import answer, say
from tests.proxy.sockets import Behind, Line, Served, request, serving
from tests.support.browser import Browser, obtain

CONVERSATIONS: Final = 2_000
VIEWERS: Final = 5
PER_SECOND: Final = 50.0
BLOCKS: Final = 6
FRAMES: Final = """
new Promise((done) => {
  const gaps = []; let last = performance.now(); const end = last + %d;
  const step = (now) => {
    gaps.push(now - last); last = now;
    if (now < end) requestAnimationFrame(step); else done(gaps);
  };
  requestAnimationFrame(step);
})
"""


def talk(port: int, number: int) -> float:
    """Send a request of a conversation; return the seconds that it took."""
    said = [{"role": "user", "content": f"conversation {number} asks for {'words ' * 40}"}]
    began = time.perf_counter()
    assert say(port, said).status == 200
    return time.perf_counter() - began


@contextmanager
def watched(port: int, viewers: int) -> Iterator[None]:
    """Keep streams of the pages open; threads read them to the end."""
    stop = threading.Event()
    with ExitStack() as held:
        for _ in range(viewers):
            line = held.enter_context(Line(port))
            line.send(request("GET", "/ullage/live"))
            thread = threading.Thread(target=_drain, args=(line, stop), daemon=True)
            thread.start()
            held.callback(thread.join, 5)
            held.callback(stop.set)
        yield


def _drain(line: Line, stop: threading.Event) -> None:
    line._socket.settimeout(0.2)
    while not stop.is_set():
        try:
            if not line._socket.recv(1 << 16):
                return
        except TimeoutError:
            continue
        except OSError:
            return


def time_requests(served: Served, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of requests without viewers and with them, in alternating blocks."""
    took: dict[str, list[float]] = {"none": [], "five": []}
    for block in range(2 * rounds):
        name, viewers = ("none", 0) if block % 2 == 0 else ("five", VIEWERS)
        with watched(served.port, viewers):
            time.sleep(0.3)
            took[name] += _pace(served.port, 150)
    return took


def _pace(port: int, many: int) -> list[float]:
    """Send requests at a steady pace."""
    took, due = [], time.perf_counter()
    for number in range(many):
        took.append(talk(port, number % CONVERSATIONS))
        due += 1 / PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
    return took


def count_frames(served: Served, browser: Browser, seconds: int) -> list[float]:
    """Return the milliseconds between frames of the first page while requests run."""
    visit = browser.open(f"http://127.0.0.1:{served.port}/")
    while visit.evaluate("document.querySelectorAll('.r').length") < 5:
        time.sleep(0.1)
    thread = threading.Thread(
        target=_pace, args=(served.port, int(seconds * PER_SECOND)), daemon=True
    )
    thread.start()
    gaps: list[float] = visit.evaluate(FRAMES % (seconds * 1_000))
    thread.join()
    visit.close()
    return gaps


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        behind = held.enter_context(Behind(answer))
        rules: Any = {"rules": [{"window": 32_000}]}
        served = held.enter_context(serving(folder, [behind.url], **rules))
        for number in range(CONVERSATIONS):
            talk(served.port, number)
        took = time_requests(served, 2 if quick else BLOCKS)
        browser = held.enter_context(Browser(obtain(fetch=False), timeout_s=120))
        gaps = sorted(count_frames(served, browser, 5 if quick else 15))
        memory = served.memory("VmRSS")
    p50 = {name: 1e3 * statistics.median(values) for name, values in took.items()}
    p99 = {name: 1e3 * sorted(v)[int(0.99 * len(v))] for name, v in took.items()}
    told = {
        "conversations": CONVERSATIONS,
        "p50_ms": {name: round(value, 2) for name, value in p50.items()},
        "p50_ratio": round(p50["five"] / p50["none"], 3),
        "p99_ms": {name: round(value, 2) for name, value in p99.items()},
        "frame_ms": {
            "median": round(statistics.median(gaps), 1),
            "p99": round(gaps[int(0.99 * len(gaps))], 1),
            "longest": round(gaps[-1], 1),
        },
        "proxy_mb": memory,
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
