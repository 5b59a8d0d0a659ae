"""Seeded transcripts of coding agents, as lists of OpenAI Chat messages.

`write(shape)` gives exactly the requested number of messages: a system message, the task, then
steps of one to four parallel calls with a result each, and replies followed by a new request. Two
of five assistant messages with calls have no content, as the API returns them. The sizes of results
are log-normal with a heavy tail. The module does not count tokens.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bench import content

Message = dict[str, Any]

SYSTEM = (
    "You change a repository through tools. Look before you edit, make the smallest change that "
    "does it, run the tests after each edit, and say what you saw. Never touch generated files. "
)
REQUESTS = (
    "`{deed}_{thing}` fails for a {trait} {thing}. Find out why and mend it in {path}.",
    "Good. Now the same for the {thing}, and leave the public names alone.",
    "The build is red in {path}, line {n}. What happened?",
    "Write a test that shows that a {trait} {thing} cannot be lost.",
    "Why does it take {m} ms to {deed} one {thing}? Measure before you change anything.",
    "请把 {thing} 的测试也补上, 谢谢。",
    "Bitte nenne `{thing}` überall in `{deed}` um, auch in den Größenangaben.",
)
RESULTS = {
    "source": 30, "log": 13, "test run": 13, "diff": 10, "search hits": 11, "JSON": 10,
    "minified": 2, "base64": 1.5, "seven languages": 5, "emoji": 1,
}  # fmt: skip
SHORT = ("", "ok", "done", "exit code 0", "no matches", "1 file changed")
CALLS = (55, 26, 13, 6)
"""Weights of one, two, three and four parallel calls."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of a transcript. `single_user`: the task is its only user message."""

    messages: int
    end: Literal["user", "tool"] = "user"
    single_user: bool = False
    seed: int = 1

    @property
    def name(self) -> str:
        """A name for files and tables."""
        kind = "single-user" if self.single_user else f"{self.end}-ending"
        return f"{self.messages}-{kind}-{self.seed}"


def write(shape: Shape) -> list[Message]:
    """Return the transcript of a shape; the same shape always gives the same transcript."""
    if shape.messages < 6:
        raise ValueError(f"a transcript has at least 6 messages, not {shape.messages}")
    agent = AgentTalk(random.Random(f"{shape.name}"))
    closing = 2 if shape.end == "user" and not shape.single_user else 0
    out = [
        {"role": "system", "content": SYSTEM + content.prose(agent.rng, 900)},
        agent.request(),
    ]
    while (left := shape.messages - closing - len(out)) > 0:
        sizes = [size for size in (2, 3, 4, 5) if left == size or left - size >= 2]
        if 2 in sizes and not shape.single_user and left > 2 and agent.rng.random() < 0.12:
            out += agent.exchange()
        else:
            weights = [CALLS[size - 2] for size in sizes]
            out += agent.step(agent.rng.choices(sizes, weights)[0] - 1)
    if closing:
        out += agent.exchange()
    return out


def turns(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield the messages before each call of the model: first the opening, then one answer each."""
    turn = messages[:2]
    for message in messages[2:]:
        if message["role"] == "assistant":
            yield turn
            turn = []
        turn.append(message)
    yield turn


class AgentTalk:
    """Draws messages; calls are numbered so that ids are unique."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.calls = 0

    def request(self) -> Message:
        text = content.remark(self.rng, self.rng.choice(REQUESTS))
        if self.rng.random() < 0.08:
            text += f"\n\n```\n{content.run_output(self.rng, self._size(6.4, 0.9))}\n```"
        return {"role": "user", "content": text}

    def exchange(self) -> list[Message]:
        reply = content.prose(self.rng, self._size(5.7, 0.5))
        return [{"role": "assistant", "content": reply}, self.request()]

    def step(self, calls: int) -> list[Message]:
        said = None if self.rng.random() < 0.4 else content.prose(self.rng, 90)
        made = [self._call() for _ in range(calls)]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": self._result()} for call in made
        ]
        return [{"role": "assistant", "content": said, "tool_calls": made}, *results]

    def _call(self) -> Message:
        self.calls += 1
        rng = self.rng
        name, arguments = rng.choice((self._read, self._run, self._edit, self._search))()
        return {
            "id": f"call_{self.calls:05}{rng.getrandbits(72):018x}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }

    def _read(self) -> tuple[str, Message]:
        return "read", {"path": content.path(self.rng), "from": self.rng.randrange(900)}

    def _run(self) -> tuple[str, Message]:
        return "run", {"command": f"pytest -q -k {content.word(self.rng)}", "timeout": 90}

    def _edit(self) -> tuple[str, Message]:
        old = content.source(self.rng, self._size(5, 0.5))
        return "edit", {"path": content.path(self.rng), "old": old, "new": old.replace("0", "1")}

    def _search(self) -> tuple[str, Message]:
        return "search", {"pattern": rf"{content.word(self.rng)}\w*\(", "in": "app"}

    def _result(self) -> str:
        if self.rng.random() < 0.22:
            return self.rng.choice(SHORT)
        kind = self.rng.choices(list(RESULTS), list(RESULTS.values()))[0]
        return content.KINDS[kind](self.rng, min(60_000, self._size(5.6, 1.15)))

    def _size(self, mean: float, spread: float) -> int:
        return round(self.rng.lognormvariate(mean, spread))
