"""The conformance suite of the adapters: each framework in a process and an environment of its own.

Sixteen turns of large tool results in a window of 16,000, and one in which the model searches what
was left out of them; then, in a new session, sixty turns in which the server takes less than it
claims, and the model is switched; a restart in between where the framework persists. The same is
done by the plain guard, and compared. In a third session the program bounds its answers, and the
server refuses a prompt that leaves no room for so long a one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tests.integrations.frameworks import ROWS
from tests.integrations.model_server import ModelServer, Watched
from tests.support.loopback import serve

ROOT: Final = Path(__file__).parents[2]

FIRST, SECOND = "tern-9", "tern-4"
"""The models of the runs: names that no table has, so that the server's word counts."""

CLAIMS: Final[Mapping[str, int]] = {FIRST: 16_000, SECOND: 10_000}
TAKES: Final[Mapping[str, int]] = {FIRST: 12_000, SECOND: 10_000}

WIDE: Final[Mapping[str, int]] = {FIRST: 1_000_000, SECOND: 1_000_000}

SHORT, LONG, SWITCH, RESTART = 16, 60, 30, 45
"""Turns of the two runs; the model is switched before turn 31, the process left before turn 46."""

ANSWER, ANSWERED = 6_000, 14
"""The tokens that answers may have in the third session, and its turns."""

SETTLED: Final = 50
"""Turns after which a history has 200 messages: person, call, result, answer."""

EXAMPLE_TIMEOUT_S: Final = 120.0
"""Seconds that the example of a page may take: heavy frameworks import for ten."""

COMPARED: Final = 30
"""Turns whose medians are compared."""


class FrameworkError(Exception):
    """A framework's process ended, or answered nothing that can be read."""


class Framework:
    """One framework's process."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin, self._stdout = stdin, stdout

    def ask(self, order: str, *args: Any, **options: Any) -> Any:
        """Have an order done; return its answer. Raises FrameworkError."""
        self._stdin.write(json.dumps([order, args, options]) + "\n")
        self._stdin.flush()
        line = self._stdout.readline()
        if not line:
            raise FrameworkError(f"the process ended at {order!r}")
        return json.loads(line)


@contextmanager
def start(name: str, python: str, log: Path) -> Iterator[Framework]:
    """Run a framework's process while the block lasts; what it prints goes to `log`."""
    with log.open("w") as told:
        child = subprocess.Popen(
            [python, "-m", "tests.integrations.child", name],
            cwd=ROOT,
            env=make_environment(log.parent),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield Framework(child.stdin, child.stdout)
        finally:
            child.stdin.close()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()


def make_environment(home: Path) -> dict[str, str]:
    """Return the variables of a framework's process: no credentials, nothing told to anybody."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "OPENAI_API_KEY": "sk-none",
        "DO_NOT_TRACK": "1",
        "OTEL_SDK_DISABLED": "true",
        "LANGSMITH_TRACING": "false",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_VERSION_CHECK": "true",
        "AGNO_TELEMETRY": "false",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }


@dataclass(frozen=True)
class Setting:
    """A run's server, and what a driver is told of it."""

    server: ModelServer
    shown: Mapping[str, Any]


@dataclass
class Outcome:
    """What a framework's runs came to."""

    version: str = ""
    sizes: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    short: Watched = field(default_factory=Watched)
    long: Watched = field(default_factory=Watched)
    bounded: Watched = field(default_factory=Watched)
    said: dict[str, Any] = field(default_factory=dict)
    reopened: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def faults(self) -> list[str]:
        """What no provider takes, of all runs."""
        return [*self.short.faults, *self.long.faults, *self.bounded.faults]

    @property
    def added_ms(self) -> float | None:
        """What the guard adds to a turn at 200 messages, in milliseconds of CPU."""
        if not self.seconds:
            return None
        return (self.seconds["guarded"] - self.seconds["bare"]) * 1000


def run_framework(name: str, python: str = sys.executable, *, timed: bool = False) -> Outcome:
    """Do all that the suite does with one framework. Raises FrameworkError."""
    made = Outcome()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        log = Path(folder) / "log"

        def open_server(claims: Mapping[str, int], takes: Mapping[str, int]) -> Setting:
            """Start a server of its own for a run: what was learned of one is not of another."""
            server = servers.enter_context(serve(ModelServer(claims, takes)))
            own = Path(tempfile.mkdtemp(dir=folder))
            shown = {"url": server.url, "model": FIRST, "window": claims[FIRST], "folder": str(own)}
            return Setting(server, shown)

        try:
            with start(name, python, log) as framework:
                held = open_server(CLAIMS, CLAIMS)
                _run_short(framework, held.shown, made)
                made.short = held.server.watched
                held = open_server(CLAIMS, TAKES)
                _run_long(framework, held.shown, made)
                made.long = held.server.watched
                held = open_server(CLAIMS, CLAIMS)
                framework.ask("open", 900, **held.shown, answer=ANSWER)
                made.failed += framework.ask("run", 1, ANSWERED)
                made.bounded = held.server.watched
                if timed:
                    shown = open_server(WIDE, WIDE).shown
                    made.seconds = framework.ask("compare", COMPARED, SETTLED, **shown)
        except (FrameworkError, BrokenPipeError) as error:
            raise FrameworkError(f"{name}: {error}\n{log.read_text()[-4000:]}") from error
    return made


def _run_short(framework: Framework, setup: Mapping[str, Any], made: Outcome) -> None:
    made.sizes = framework.ask("open", 900, **setup)
    made.failed += framework.ask("run", 1, SHORT)
    made.failed += framework.ask("search", SHORT + 1)
    made.said = framework.ask("check", SHORT)
    made.lost += made.said["lost"]


def _run_long(framework: Framework, setup: Mapping[str, Any], made: Outcome) -> None:
    framework.ask("open", 300, **setup, asynchronous=True)
    made.failed += framework.ask("run", 1, SWITCH)
    framework.ask("switch", SECOND, CLAIMS[SECOND])
    made.failed += framework.ask("run", SWITCH + 1, RESTART)
    made.reopened = framework.ask("reopen")
    made.failed += framework.ask("run", RESTART + 1, LONG)
    made.lost += framework.ask("check", LONG)["lost"]


def list_faults(name: str, made: Outcome, plain: Outcome) -> list[str]:
    """Return what a framework's runs lack of what is wanted, a sentence each."""
    found = [*made.failed, *made.faults]
    if made.lost:
        found.append(f"results of parts {made.lost} are not stored as they were")
    bounded = made.bounded
    if bounded.requests and not bounded.bounded:
        found.append("the bound of its answers was not sent")
    if len(bounded.refused) > 1:  # the first one tells that the server insists
        found.append(f"{len(bounded.refused)} requests without room for the answer asked for")
    if made.short.refused:
        found.append(f"{len(made.short.refused)} requests over a window that was known")
    same = ROWS[name].same if name in ROWS else True
    for run, wanted in ((made.short, plain.short), (made.long, plain.long)):
        if same and run.breaks != wanted.breaks:
            found.append(f"compacted at {run.breaks}, the plain guard at {wanted.breaks}")
    return found


def find_version(python: str, distribution: str) -> str:
    """Return the version of a distribution in an environment."""
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run_example(name: str, python: str) -> list[str]:
    """Run the example of a framework's page as it stands; return what went wrong."""
    page = (ROOT / "docs" / "integrations" / f"{name}.md").read_text()
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    if block is None:
        return ["its page has no example"]
    with tempfile.TemporaryDirectory() as folder, serve(ModelServer(CLAIMS, CLAIMS)) as server:
        program = Path(folder) / "example.py"
        program.write_text(block[1])
        done = subprocess.run(
            [python, str(program)],
            cwd=folder,
            env={
                **make_environment(Path(folder)),
                "OPENAI_BASE_URL": server.url,
                "OPENAI_API_BASE": server.url,
            },
            capture_output=True,
            text=True,
            timeout=EXAMPLE_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        return [f"its example failed: {done.stderr.strip()[-500:]}"]
    return (
        [] if "turn 1 is done" in done.stdout else [f"its example printed {done.stdout[-200:]!r}"]
    )
