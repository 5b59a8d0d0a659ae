"""A loopback server of Anthropic's Messages that drops the thinking of earlier turns itself.

As documented for Claude before Opus 4.5: thinking of earlier turns is removed from the prompt and
is no part of `input_tokens`; within a loop of tools it stays. Sources: Anthropic, "Context
windows" (`context_window = (input_tokens - previous_thinking_tokens) + current_turn_tokens`) and
"Token counting" (thinking of previous turns is ignored). A token is four characters.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.preserved import LOOK, TOO_LONG, Body, Preserving, count

MODEL: Final = "claude-sonnet-4-5"
WINDOW: Final = 200_000

THOUGHT: Final = "First the page that comes next, then what stands on it, and what follows. "


class Stripping(Preserving):
    """The server. `thought` is how often a thought's sentence is said, `loop` the calls of a turn.

    `sizes` are the prompts as they were reported.
    """

    def __init__(self, window: int, call: Body, thought: int, loop: int) -> None:
        super().__init__(window, frozenset(), call)
        self.thought, self.loop = thought, loop
        self.sizes: list[int] = []

    def refuse(self, body: Body) -> str | None:
        """Return what is wrong with a request, or None."""
        size = count_read(body)
        return TOO_LONG.format(n=size, most=self.window) if size > self.window else None

    def answer(self, body: Body) -> dict[str, Any]:
        """Return a thought, and a call or, at the end of a turn, a text."""
        self.sizes.append(count_read(body))
        number = len(self.sizes)
        self.last = 0 if number % (self.loop + 1) == 0 else 10**6
        made = super().answer(body)
        thought, said = made["content"]
        thought["thinking"] = f"Step {number}. " + THOUGHT * self.thought
        usage = {"input_tokens": self.sizes[-1], "output_tokens": 40}
        if said["type"] == "tool_use":
            said["id"] = f"toolu_{number}"
        return {**made, "usage": usage}


def count_read(body: Body) -> int:
    """Return the size of a request without the thinking of closed turns."""
    messages = body["messages"]
    asked = max(i for i, m in enumerate(messages) if m["role"] == "user" and not _is_result(m))
    kept = [_strip(m) if i < asked else m for i, m in enumerate(messages)]
    return count({**body, "messages": kept})


def _is_result(message: Body) -> bool:
    content = message["content"]
    return not isinstance(content, str) and all(b["type"] == "tool_result" for b in content)


def _strip(message: Body) -> Body:
    content = message["content"]
    if isinstance(content, str):
        return message
    return {**message, "content": [b for b in content if b["type"] != "thinking"]}


@contextmanager
def stripping(
    window: int = WINDOW, *, call: Body = LOOK, thought: int = 150, loop: int = 5
) -> Iterator[Stripping]:
    """Run a server while the block lasts."""
    server = Stripping(window, call, thought, loop)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
