"""LlamaIndex's function agent over a memory: whole answers first, streamed ones after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from tests.integrations.scenario import INSTRUCTIONS, Setup, read_log
from ullage.integrations.llama_index import (
    GuardedFunctionAgent,
    GuardedMemory,
    find_window,
    make_counter,
)


class LlamaIndexDriver:
    """One memory of an agent; `asynchronous` is its streamed run, since all of it is awaited."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = asyncio.Runner()
        self._tool = FunctionTool.from_defaults(read_log)
        self._memory = GuardedMemory()
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._model = model
        kind = GuardedFunctionAgent if self._setup.guarded else FunctionAgent
        llm = OpenAILike(
            model=model,
            api_base=self._setup.url,
            api_key="sk-none",
            is_chat_model=True,
            is_function_calling_model=True,
            max_retries=0,
            **self._setup.limit(),
            additional_kwargs={"stream_options": {"include_usage": True}}
            if self._setup.asynchronous
            else {},
        )
        self._agent = kind(
            name="station",
            description="reads",
            llm=llm,
            tools=[self._tool],
            system_prompt=INSTRUCTIONS,
            streaming=self._setup.asynchronous,
        )

    def say(self, text: str) -> str:
        return self._runner.run(self._say(text))

    async def _say(self, text: str) -> str:
        made = await self._agent.run(text, memory=self._memory)
        return str(made.response.content)

    def reopen(self) -> bool:
        self._memory = GuardedMemory.from_dict(json.loads(json.dumps(self._memory.to_dict())))
        self.switch(self._model, 0)
        return True

    def read_results(self) -> list[str]:
        return [str(m.content) for m in self._memory.get_all() if m.role == "tool"]

    def find_window(self) -> int | None:
        return find_window(self._model, base_url=self._setup.url)

    def count(self, text: str) -> int:
        return len(make_counter(self._model)(text))


def open_driver(setup: Setup) -> LlamaIndexDriver:
    return LlamaIndexDriver(setup)
