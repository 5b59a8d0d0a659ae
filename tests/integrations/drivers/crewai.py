"""CrewAI's agent, whose runs get the messages of the runs before, guarded by a wrapped LLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from crewai import LLM, Agent
from crewai.tools import tool

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.crewai import CrewGuard, find_window, make_counter


@tool("read_log")
def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class CrewaiDriver:
    """One agent and its messages."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._guard = CrewGuard() if setup.guarded else None
        self._runner = asyncio.Runner()
        self._history: list[Any] = []
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        url = self._setup.url
        given = {"api_key": "sk-none", "max_retries": 0, **self._setup.limit()}
        self._llm = LLM(model=f"openai/{model}", base_url=url, **given)
        self._agent = Agent(
            role="keeper",
            goal=INSTRUCTIONS,
            backstory="",
            respect_context_window=self._setup.guarded,  # bare, it would summarise by itself
            llm=self._guard.wrap(self._llm) if self._guard else self._llm,
            tools=[read_log, *(self._guard.tools if self._guard else [])],
        )

    def say(self, text: str) -> str:
        given = [*self._history, {"role": "user", "content": text}]
        if self._setup.asynchronous:
            made = self._runner.run(self._agent.kickoff_async(given))
        else:
            made = self._agent.kickoff(given)
        self._history = [m for m in made.messages if m["role"] != "system"]
        return str(made.raw)

    def reopen(self) -> bool:
        return False

    def read_results(self) -> list[str]:
        return [str(m["content"]) for m in self._history if m["role"] == "tool"]

    def find_window(self) -> int | None:
        return find_window(self._llm)

    def count(self, text: str) -> int:
        return make_counter(self._llm.model)(text)


def open_driver(setup: Setup) -> CrewaiDriver:
    return CrewaiDriver(setup)
