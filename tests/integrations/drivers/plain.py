"""No framework: the guard over a list of messages, the measure that all others are held to."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from tests.integrations.scenario import INSTRUCTIONS, Setup, read_log
from ullage import Guard, answer_search
from ullage.core.dialects import registry
from ullage.integrations.adapter import TOOLS
from ullage.storage import MemoryStore

READ = {
    "type": "function",
    "function": {
        "name": "read_log",
        "description": "Return the entries of a part of the journal.",
        "parameters": {
            "type": "object",
            "properties": {"part": {"type": "integer"}},
            "required": ["part"],
        },
    },
}


class _Refusal(Exception):  # noqa: N818 - it carries what SDKs' errors carry
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status_code, self.body = status, json.loads(text)


class PlainDriver:
    """A loop over the guard, by hand."""

    sizes: Sequence[str] = ("window", "counter", "guard")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._history: list[Any] = [{"role": "system", "content": INSTRUCTIONS}]
        self._store = MemoryStore()
        self._sent: list[Any] = []
        form = registry.find("openai_chat").make_form()
        self._tools = [READ, *(form.tool(spec) for spec in TOOLS if setup.guarded)]
        self.switch(setup.model, setup.window)

    def say(self, text: str) -> str:
        self._history.append({"role": "user", "content": text})
        while True:
            answer = self._send()["choices"][0]["message"]
            self._history.append(answer)
            calls = answer.get("tool_calls")
            if not calls:
                return str(answer["content"])
            for call in calls:
                text = self._answer(call["function"]["name"], call["function"]["arguments"])
                said = {"role": "tool", "tool_call_id": call["id"], "content": text}
                self._history.append(said)

    def _answer(self, name: str, arguments: str) -> str:
        if name == "read_log":
            return read_log(json.loads(arguments)["part"])
        return answer_search(arguments, self._store, messages=self._sent)

    def _send(self) -> Any:
        if not self._setup.guarded:
            return self._post(model=self._model, messages=self._history, tools=self._tools)
        given = {"tools": self._tools, **self._setup.limit()}
        return self._guard.call(self._post, self._history, **given)

    def _post(self, **body: Any) -> Any:
        self._sent = body["messages"]
        request = urllib.request.Request(
            f"{self._setup.url}/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise _Refusal(error.code, error.read().decode()) from None

    def switch(self, model: str, window: int) -> None:
        self._model = model
        self._guard = Guard(model, base_url=self._setup.url, store=self._store)

    def reopen(self) -> bool:
        return False

    def read_results(self) -> list[str]:
        return [m["content"] for m in self._history if m["role"] == "tool"]

    def find_window(self) -> int | None:
        return self._guard.window().input_tokens

    def count(self, text: str) -> int:
        import ullage

        return ullage.count([{"role": "user", "content": text}], model=self._model).tokens


def open_driver(setup: Setup) -> PlainDriver:
    return PlainDriver(setup)
