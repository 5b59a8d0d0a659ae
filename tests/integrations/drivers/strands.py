"""Strands' agent with its file session manager, guarded by a conversation manager."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.strands import ConversationGuard, find_window, make_counter


@tool
def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class StrandsDriver:
    """One session of an agent."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = asyncio.Runner()
        self._name = uuid4().hex
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._model = model
        client = {"base_url": self._setup.url, "api_key": "sk-none", "max_retries": 0}
        self._agent = Agent(
            OpenAIModel(client_args=client, model_id=model, params=self._setup.limit()),
            tools=[read_log],
            system_prompt=INSTRUCTIONS,
            callback_handler=None,
            conversation_manager=ConversationGuard()
            if self._setup.guarded
            else NullConversationManager(),
            session_manager=FileSessionManager(self._name, str(self._setup.folder)),
        )

    def say(self, text: str) -> str:
        if self._setup.asynchronous:
            made: Any = self._runner.run(self._agent.invoke_async(text))
        else:
            made = self._agent(text)
        return str(made).strip()

    def reopen(self) -> bool:
        self.switch(self._model, 0)  # a new agent and a new guard: all they know is in the files
        return True

    def read_results(self) -> list[str]:
        blocks = [block for m in self._agent.messages for block in m["content"]]
        return [b["toolResult"]["content"][0]["text"] for b in blocks if "toolResult" in b]

    def find_window(self) -> int | None:
        return find_window(self._model, base_url=self._setup.url)

    def count(self, text: str) -> int:
        return make_counter(self._model)([{"role": "user", "content": [{"text": text}]}])


def open_driver(setup: Setup) -> StrandsDriver:
    return StrandsDriver(setup)
