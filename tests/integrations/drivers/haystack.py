"""Haystack's agent over messages and a state that the program keeps, guarded by its generator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.haystack import (
    KEY,
    GuardedGenerator,
    MessageCounter,
    StateKeeper,
    find_window,
)


@tool
def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class HaystackDriver:
    """One conversation of an agent; `asynchronous` is its awaited run."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = asyncio.Runner()
        self._messages: list[ChatMessage] = []
        self._state: dict[str, Any] = {}
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._model = model
        inner = OpenAIChatGenerator(
            api_key=Secret.from_token("sk-none"),
            model=model,
            api_base_url=self._setup.url,
            max_retries=0,
            generation_kwargs=self._setup.limit(),
        )
        if not self._setup.guarded:
            self._agent = Agent(chat_generator=inner, tools=[read_log], system_prompt=INSTRUCTIONS)
            return
        guard = GuardedGenerator(inner)
        self._agent = Agent(
            chat_generator=guard,
            tools=[read_log, *guard.tools],
            system_prompt=INSTRUCTIONS,
            state_schema={KEY: {"type": dict}},
            hooks={"before_llm": [StateKeeper()]},
        )

    def say(self, text: str) -> str:
        given: dict[str, Any] = {"messages": [*self._messages, ChatMessage.from_user(text)]}
        if self._setup.guarded:
            given[KEY] = self._state
        if self._setup.asynchronous:
            made = self._runner.run(self._agent.run_async(**given))
        else:
            made = self._agent.run(**given)
        self._messages = [m for m in made["messages"] if not m.is_from("system")]
        self._state = made.get(KEY, {})
        return str(made["last_message"].text)

    def reopen(self) -> bool:
        kept = json.dumps([[m.to_dict() for m in self._messages], self._state])
        messages, self._state = json.loads(kept)
        self._messages = [ChatMessage.from_dict(m) for m in messages]
        self.switch(self._model, 0)
        return True

    def read_results(self) -> list[str]:
        return [str(r.result) for m in self._messages for r in m.tool_call_results]

    def find_window(self) -> int | None:
        return find_window(self._model, base_url=self._setup.url)

    def count(self, text: str) -> int:
        return MessageCounter(self._model).count([ChatMessage.from_user(text)])


def open_driver(setup: Setup) -> HaystackDriver:
    return HaystackDriver(setup)
