"""OpenAI's Agents SDK over Chat Completions, its history in its own SQLite session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
)
from openai import AsyncOpenAI

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.openai_agents import AgentsGuard, make_counter, make_tools, make_trigger


@function_tool
def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class AgentsDriver:
    """One session of an agent: streamed where the setup is asynchronous."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = asyncio.Runner()
        self._name = str(len(list(setup.folder.iterdir())))
        self._open(setup.model)

    def _open(self, model: str) -> None:
        held = self._setup.folder / f"agents-{self._name}.db"
        self._session = SQLiteSession("one", held)
        self._state = SQLiteSession("one/ullage", held)
        self.switch(model, 0)

    def switch(self, model: str, window: int) -> None:
        client = AsyncOpenAI(base_url=self._setup.url, api_key="sk-none", max_retries=0)
        spoken: Any = OpenAIChatCompletionsModel(model, client)
        self._model = model
        if self._setup.guarded:
            spoken = AgentsGuard(spoken, self._state)
        self._agent = Agent(
            "keeper",
            instructions=INSTRUCTIONS,
            model=spoken,
            tools=[read_log, *(make_tools() if self._setup.guarded else [])],
            model_settings=ModelSettings(include_usage=True, **self._setup.limit()),
        )

    def say(self, text: str) -> str:
        return self._runner.run(self._say(text))

    async def _say(self, text: str) -> str:
        told = RunConfig(tracing_disabled=True)
        if not self._setup.asynchronous:
            made: Any = await Runner.run(self._agent, text, session=self._session, run_config=told)
            return str(made.final_output)
        made = Runner.run_streamed(self._agent, text, session=self._session, run_config=told)
        async for _ in made.stream_events():
            pass
        return str(made.final_output)

    def reopen(self) -> bool:
        self._session.close()
        self._state.close()
        self._open(self._model)
        return True

    def read_results(self) -> list[str]:
        items: Any = self._runner.run(self._session.get_items())
        return [i["output"] for i in items if i.get("type") == "function_call_output"]

    def find_window(self) -> int | None:
        is_due = make_trigger(self._model, base_url=self._setup.url)
        words = [{"role": "user", "content": "gust " * self._setup.window}]
        assert is_due({"session_items": words})
        assert not is_due({"session_items": words[:0]})
        return AgentsGuard(self._agent.model.wrapped).session.window

    def count(self, text: str) -> int:
        return make_counter(self._model)([{"role": "user", "content": text}])


def open_driver(setup: Setup) -> AgentsDriver:
    return AgentsDriver(setup)
