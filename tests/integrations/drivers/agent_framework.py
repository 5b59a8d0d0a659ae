"""Microsoft's agent over its own history in a session: whole answers first, streamed ones after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, AgentSession, InMemoryHistoryProvider, tool
from agent_framework.openai import OpenAIChatCompletionClient

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.agent_framework import ContextGuardProvider, Tokenizer, find_window


@tool
def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


def leave_name(message: Any, made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the agent's name, which the framework adds to a message once its run is over."""
    return [{key: value for key, value in raw.items() if key != "name"} for raw in made]


class AgentFrameworkDriver:
    """One session of an agent; `asynchronous` is its streamed run, since all of it is awaited."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = asyncio.Runner()
        self._session = AgentSession()
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._model = model
        client = OpenAIChatCompletionClient(
            model, base_url=self._setup.url, api_key="sk-none", message_preparer=leave_name
        )
        providers: list[Any] = [InMemoryHistoryProvider()]
        if self._setup.guarded:
            providers.append(ContextGuardProvider())
        self._agent = Agent(
            client,
            INSTRUCTIONS,
            tools=[read_log],
            context_providers=providers,
            default_options=self._setup.limit(),
        )

    def say(self, text: str) -> str:
        return self._runner.run(self._stream(text) if self._setup.asynchronous else self._run(text))

    async def _run(self, text: str) -> str:
        return str((await self._agent.run(text, session=self._session)).text)

    async def _stream(self, text: str) -> str:
        stream = self._agent.run(text, session=self._session, stream=True)
        return "".join([update.text async for update in stream])

    def reopen(self) -> bool:
        self._session = AgentSession.from_dict(json.loads(json.dumps(self._session.to_dict())))
        self.switch(self._model, 0)
        return True

    def read_results(self) -> list[str]:
        held = self._session.state["in_memory"]["messages"]
        return [c.result for m in held for c in m.contents if c.type == "function_result"]

    def find_window(self) -> int | None:
        return find_window(self._model, base_url=self._setup.url)

    def count(self, text: str) -> int:
        return Tokenizer(self._model).count_tokens(text)


def open_driver(setup: Setup) -> AgentFrameworkDriver:
    return AgentFrameworkDriver(setup)
