"""LiteLLM has no agent: a loop by hand over its Router, then over `acompletion`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import litellm

from tests.integrations.drivers.plain import READ
from tests.integrations.scenario import INSTRUCTIONS, Setup, read_log
from ullage.integrations.litellm import LiteLLMGuard, find_model_info, make_counter


class LitellmDriver:
    """A list of messages; the callback is LiteLLM's to call."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runner = asyncio.Runner()
        self._history: list[Any] = [{"role": "system", "content": INSTRUCTIONS}]
        self._guard = LiteLLMGuard() if setup.guarded else None
        self.switch(setup.model, setup.window)

    def switch(self, model: str, window: int) -> None:
        self._at = {"api_base": self._setup.url, "api_key": "sk-none"}
        self._model = f"openai/{model}"
        deployment = {"model_name": "station", "litellm_params": {"model": self._model, **self._at}}
        self._router = litellm.Router([deployment])

    def say(self, text: str) -> str:
        litellm.callbacks = [self._guard] if self._guard else []
        return self._runner.run(self._say(text))

    async def _say(self, text: str) -> str:
        self._history.append({"role": "user", "content": text})
        while True:
            answer = await self._ask()
            self._history.append(answer)
            if not answer.get("tool_calls"):
                return str(answer["content"])
            for call in answer["tool_calls"]:
                text = self._answer(**call["function"])
                said = {"role": "tool", "tool_call_id": call["id"], "content": text}
                self._history.append(said)

    def _answer(self, name: str, arguments: str) -> str:
        if self._guard is not None and name != "read_log":
            return self._guard.answer(name, arguments, model=self._model, **self._at)
        return read_log(json.loads(arguments)["part"])

    async def _ask(self) -> dict[str, Any]:
        asked: dict[str, Any] = {
            **self._setup.limit(),
            "messages": self._history,
            "tools": [READ, *(self._guard.tools if self._guard else [])],
        }
        if self._setup.asynchronous:
            made: Any = await litellm.acompletion(model=self._model, **asked, **self._at)
        else:
            made = await self._router.acompletion("station", **asked)
        message = made.choices[0].message.model_dump(exclude_none=True)
        return {k: v for k, v in message.items() if k in ("role", "content", "tool_calls")}

    def reopen(self) -> bool:
        return False

    def read_results(self) -> list[str]:
        return [m["content"] for m in self._history if m["role"] == "tool"]

    def find_window(self) -> int | None:
        found: Any = find_model_info(self._model.removeprefix("openai/"), base_url=self._setup.url)
        litellm.register_model({self._model: {**found, "litellm_provider": "openai"}})
        return litellm.get_model_info(self._model)["max_input_tokens"]

    def count(self, text: str) -> int:
        return make_counter(self._model)([{"role": "user", "content": text}])


def open_driver(setup: Setup) -> LitellmDriver:
    return LitellmDriver(setup)
