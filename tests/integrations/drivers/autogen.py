"""AutoGen's assistant over a model context: whole answers first, streamed ones after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.autogen import (
    GuardedClient,
    GuardedContext,
    find_window,
    make_counter,
)


async def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class AutogenDriver:
    """One assistant; `asynchronous` streams the model's answers, since all of it is awaited."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = asyncio.Runner()
        self._context: Any = GuardedContext() if setup.guarded else UnboundedChatCompletionContext()
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._model = model
        client: Any = OpenAIChatCompletionClient(
            model=model,
            base_url=self._setup.url,
            api_key="sk-none",
            max_retries=0,
            include_name_in_message=False,
            stream_options={"include_usage": True},
            **self._setup.limit(),
            model_info={
                "vision": False,
                "function_calling": True,
                "json_output": False,
                "family": "unknown",
                "structured_output": False,
            },
        )
        tools: list[Any] = [read_log]
        if self._setup.guarded:
            client = GuardedClient(client)
            tools += client.tools
        self._agent = AssistantAgent(
            "station",
            client,
            tools=tools,
            model_context=self._context,
            system_message=INSTRUCTIONS,
            max_tool_iterations=5,
            model_client_stream=self._setup.asynchronous,
        )

    def say(self, text: str) -> str:
        made: Any = self._runner.run(self._agent.run(task=text))
        return str(made.messages[-1].content)

    def reopen(self) -> bool:
        kept = json.loads(json.dumps(self._runner.run(self._agent.save_state())))
        self._context = GuardedContext()
        self.switch(self._model, 0)
        self._runner.run(self._agent.load_state(kept))
        return True

    def read_results(self) -> list[str]:
        held = self._runner.run(self._context.get_messages())
        results = [m for m in held if isinstance(m, FunctionExecutionResultMessage)]
        return [result.content for m in results for result in m.content]

    def find_window(self) -> int | None:
        return find_window(self._model, base_url=self._setup.url)

    def count(self, text: str) -> int:
        return make_counter(self._model)([UserMessage(content=text, source="user")])


def open_driver(setup: Setup) -> AutogenDriver:
    return AutogenDriver(setup)
