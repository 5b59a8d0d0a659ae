"""Pydantic AI's agent, its history kept as the JSON that the framework makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent, ModelMessagesTypeAdapter
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.pydantic_ai import PydanticGuard, make_counter, make_profile


def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class PydanticDriver:
    """One conversation of an agent: streamed where the setup is asynchronous."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._history: list[Any] = []
        self._runner = asyncio.Runner()
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        provider = OpenAIProvider(base_url=self._setup.url, api_key="sk-none")
        self._model = OpenAIChatModel(model, provider=provider, settings=self._setup.limit())
        guards = [PydanticGuard()] if self._setup.guarded else []
        self._agent = Agent(
            self._model, instructions=INSTRUCTIONS, tools=[read_log], capabilities=guards
        )

    def say(self, text: str) -> str:
        if self._setup.asynchronous:
            return self._runner.run(self._stream(text))
        made = self._runner.run(self._agent.run(text, message_history=self._history))
        self._history = made.all_messages()
        return str(made.output)

    async def _stream(self, text: str) -> str:
        async with self._agent.run_stream(text, message_history=self._history) as made:
            answer = await made.get_output()
        self._history = made.all_messages()
        return str(answer)

    def reopen(self) -> bool:
        held = ModelMessagesTypeAdapter.dump_json(self._history)
        self._history = ModelMessagesTypeAdapter.validate_json(held)
        self.switch(self._model.model_name, 0)
        return True

    def read_results(self) -> list[str]:
        parts = [part for message in self._history for part in message.parts]
        return [part.content for part in parts if isinstance(part, ToolReturnPart)]

    def find_window(self) -> int | None:
        profile: Any = make_profile(self._model.model_name, base_url=self._setup.url)
        return OpenAIChatModel(self._model.model_name, profile=profile).context_window

    def count(self, text: str) -> int:
        return make_counter(self._model.model_name)([ModelRequest([UserPromptPart(text)])])


def open_driver(setup: Setup) -> PydanticDriver:
    return PydanticDriver(setup)
