"""AG2's agent on a stream in memory: whole answers first, streamed ones after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from ag2 import Agent, MemoryStream
from ag2.config import OpenAIConfig
from ag2.events import ModelRequest, TextInput, ToolResultsEvent
from ag2.events._serialization import deserialize_value, serialize_value

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.ag2 import KEY, StreamGuard, find_window, make_counter


def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


RUNNER = asyncio.Runner()
"""One for all drivers: AG2 makes a client for each turn, and closes it whenever it is collected."""


class Ag2Driver:
    """One stream of an agent; `asynchronous` streams answers, since all of it is awaited."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = RUNNER
        self._stream = MemoryStream()
        self._variables: dict[Any, Any] = {}
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._model = model
        config = OpenAIConfig(
            model,
            api_key="sk-none",
            base_url=self._setup.url,
            max_retries=0,
            streaming=self._setup.asynchronous,
            **self._setup.limit(),
        )
        plugins = [StreamGuard()] if self._setup.guarded else []
        self._agent = Agent(
            "station", prompt=INSTRUCTIONS, config=config, tools=[read_log], plugins=plugins
        )

    def say(self, text: str) -> str:
        return self._runner.run(self._say(text))

    async def _say(self, text: str) -> str:
        made = await self._agent.ask(text, stream=self._stream, variables=self._variables)
        if KEY in made.context.variables:
            self._variables = {KEY: made.context.variables[KEY]}
        return str(made.body)

    def reopen(self) -> bool:
        held = list(self._runner.run(self._stream.history.get_events()))
        kept = json.loads(json.dumps([[serialize_value(event) for event in held], self._variables]))
        self._stream = MemoryStream(id=self._stream.id)
        events = [deserialize_value(event) for event in kept[0]]
        self._runner.run(self._stream.history.replace(events))
        self._variables = kept[1]
        self.switch(self._model, 0)
        return True

    def read_results(self) -> list[str]:
        held = self._runner.run(self._stream.history.get_events())
        results = [r for e in held if isinstance(e, ToolResultsEvent) for r in e.results]
        return [part.content for r in results for part in r.result.parts]

    def find_window(self) -> int | None:
        return find_window(self._model, base_url=self._setup.url)

    def count(self, text: str) -> int:
        return make_counter(self._model)([ModelRequest([TextInput(text)])])


def open_driver(setup: Setup) -> Ag2Driver:
    return Ag2Driver(setup)
