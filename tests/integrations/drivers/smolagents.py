"""smolagents' tool calling agent on its model for OpenAI-compatible servers, guarded by a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smolagents import ChatMessage, LogLevel, MessageRole, OpenAIModel, ToolCallingAgent, tool

from tests.integrations.scenario import INSTRUCTIONS, Setup
from tests.integrations.scenario import read_log as read_part
from ullage.integrations.smolagents import SmolGuard, find_window, make_counter


@tool
def read_log(part: int) -> str:
    """Return the entries of a part of the journal.

    Args:
        part: the number of the part
    """
    return read_part(part)


class SmolagentsDriver:
    """One agent, whose runs go on from each other; streamed where calls are to be awaited."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._model = self._make_model(setup.model)
        self._guard = SmolGuard(self._model) if setup.guarded else None
        self._agent = ToolCallingAgent(
            [read_log, *(self._guard.tools if self._guard else [])],
            self._guard or self._model,
            instructions=INSTRUCTIONS,
            stream_outputs=setup.asynchronous,
            verbosity_level=LogLevel.OFF,
        )
        self._agent.prompt_templates["system_prompt"] = "{{custom_instructions}}"

    def _make_model(self, name: str) -> OpenAIModel:
        given = {"client_kwargs": {"max_retries": 0}, **self._setup.limit()}
        return OpenAIModel(name, self._setup.url, "sk-none", **given)

    def switch(self, model: str, window: int) -> None:
        self._model = self._make_model(model)
        if self._guard:
            self._guard.model = self._model

    def say(self, text: str) -> str:
        return str(self._agent.run(text, reset=False))

    def reopen(self) -> bool:
        return False

    def read_results(self) -> list[str]:
        return [step.observations for step in self._agent.memory.steps if _has_result(step)]

    def find_window(self) -> int | None:
        return find_window(self._model)

    def count(self, text: str) -> int:
        return make_counter(self._model.model_id)([ChatMessage(MessageRole.USER, text)])


def _has_result(step: Any) -> bool:
    return any(call.name == "read_log" for call in getattr(step, "tool_calls", None) or ())


def open_driver(setup: Setup) -> SmolagentsDriver:
    return SmolagentsDriver(setup)
