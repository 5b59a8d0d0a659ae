"""A conversation of a Pydantic AI agent, as its makers document it.

`python pydantic_talk.py openai|anthropic whole|streamed TURNS`; where to is for the environment.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent

MODELS = {"openai": "openai-chat:tiny", "anthropic": "anthropic:tiny"}


def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text("utf-8")


async def main(dialect: str, way: str, turns: str) -> None:
    """Hold the conversation; print what the agent said in each turn."""
    agent = Agent(MODELS[dialect], tools=[read])
    history: list[Any] = []
    for turn in range(int(turns)):
        question = f"What is in the cellar on day {turn}?"
        if way == "streamed":
            async with agent.run_stream(question, message_history=history) as run:
                print(await run.get_output())  # noqa: T201 - what it is for
        else:
            run = await agent.run(question, message_history=history)
            print(run.output)  # noqa: T201 - the same
        history = run.all_messages()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
