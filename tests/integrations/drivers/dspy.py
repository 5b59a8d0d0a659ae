"""DSPy's language model by canonical requests, in a loop by hand, as its agents send them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import dspy
from dspy.lm15 import Config, FunctionTool, Message, Request, TextPart, ToolCallPart, ToolResultPart

from tests.integrations.drivers.plain import READ
from tests.integrations.scenario import INSTRUCTIONS, Setup, read_log
from ullage.integrations.dspy import find_window, guard_lm, make_counter, make_tools


class DspyDriver:
    """One conversation: a tuple of messages."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = asyncio.Runner()
        self._history: list[Message] = []
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._model = f"openai/{model}"
        read: Any = READ["function"]
        self._tools = [FunctionTool(read["name"], read["description"], read["parameters"])]
        self._lm = dspy.LM(
            self._model,
            api_base=self._setup.url,
            api_key="sk-none",
            engine="lm15",
            cache=False,
            num_retries=0,
        )
        self._own: list[Any] = []
        if self._setup.guarded:
            self._lm = guard_lm(self._lm, "one")
            self._own = make_tools(self._lm)
        self._tools += [
            FunctionTool(t.name, t.desc, {"type": "object", "properties": t.args})
            for t in self._own
        ]

    def say(self, text: str) -> str:
        self._history.append(Message.user(text))
        while True:
            asked = Request(
                self._model,
                tuple(self._history),
                INSTRUCTIONS,
                tuple(self._tools),
                config=Config(**self._setup.limit()),
            )
            if self._setup.asynchronous:
                answer: Any = self._runner.run(self._lm.acall(request=asked))
            else:
                answer = self._lm(request=asked)
            self._history.append(answer.message)
            calls = answer.message.parts_of(ToolCallPart)
            if not calls:
                return "".join(part.text for part in answer.message.parts_of(TextPart))
            for call in calls:
                self._history.append(Message.tool(call.id, self._answer(call.name, call.input)))

    def _answer(self, name: str, given: Any) -> str:
        own = {tool.name: tool for tool in self._own}
        return str(own[name](**given)) if name in own else read_log(given["part"])

    def reopen(self) -> bool:
        return False

    def read_results(self) -> list[str]:
        held = [p for m in self._history for p in m.parts if isinstance(p, ToolResultPart)]
        return ["".join(part.text for part in result.content) for result in held]

    def find_window(self) -> int | None:
        return find_window(self._model.removeprefix("openai/"), base_url=self._setup.url)

    def count(self, text: str) -> int:
        return make_counter(self._model)([Message.user(text)])


def open_driver(setup: Setup) -> DspyDriver:
    return DspyDriver(setup)
