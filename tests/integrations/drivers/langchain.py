"""LangChain's agent on a LangGraph checkpointer in memory, guarded by the middleware."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.langchain import ContextGuard, make_counter, make_profile


@tool
def read_log(part: int) -> str:
    """Return the entries of a part of the journal."""
    return read_part(part)


class LangchainDriver:
    """One thread of an agent."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._saver = InMemorySaver()
        self._runner = asyncio.Runner()
        self._at: Any = {"configurable": {"thread_id": "one"}, "recursion_limit": 50}
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        url = self._setup.url
        given = {"max_retries": 0, "api_key": "sk-none", **self._setup.limit()}
        self._model = ChatOpenAI(model=model, base_url=url, **given)
        self._guard = ContextGuard() if self._setup.guarded else None
        self._agent = create_agent(
            self._model,
            [read_log],
            system_prompt=INSTRUCTIONS,
            middleware=[self._guard] if self._guard else [],
            checkpointer=self._saver,
        )

    def say(self, text: str) -> str:
        given = {"messages": [HumanMessage(text)]}
        if self._setup.asynchronous:
            made = self._runner.run(self._agent.ainvoke(given, self._at))
        else:
            made = self._agent.invoke(given, self._at)
        return str(made["messages"][-1].text)

    def reopen(self) -> bool:
        self.switch(self._model.model_name, 0)  # a new guard: what it knows is in the graph's state
        return True

    def read_results(self) -> list[str]:
        held = self._agent.get_state(self._at).values["messages"]
        return [m.content for m in held if isinstance(m, ToolMessage)]

    def find_window(self) -> int | None:
        made = make_profile(self._model.model_name, base_url=self._setup.url)
        return made.get("max_input_tokens")

    def count(self, text: str) -> int:
        return make_counter(self._model.model_name)([HumanMessage(text)])


def open_driver(setup: Setup) -> LangchainDriver:
    return LangchainDriver(setup)
