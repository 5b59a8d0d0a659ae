"""The official Python SDKs through the proxy: five windows, whole and streamed, with real calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import anthropic
import openai
import pytest

from tests.clients.watching import Guarded
from tests.support import tinymodel

TURNS: Final = 14
ANSWER: Final = 64
REFUSED: Final = (openai.BadRequestError, anthropic.BadRequestError)
RECORD: Final = "wind and water were fair today, all hands well, nothing is missing. " * 20
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}
ABOUT: Final = "Read a file."


def question(turn: int) -> str:
    return f"What is in the cellar on day {turn}?"


def looked(turn: int) -> str:
    return f"Day {turn}: seven casks. {RECORD}"


class Talk(Protocol):
    """One client that keeps a history, as its makers document it."""

    client: Any

    def asked(self, turn: int) -> None:
        """Put a question to the history."""
        ...

    def answered(self, turn: int) -> str:
        """Take one answer, and run the tools that it calls; return what it says in words."""
        ...


class Chat:
    """The OpenAI SDK, Chat Completions."""

    def __init__(self, url: str, stream: bool) -> None:
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        self.stream = stream
        self.history: list[Any] = [{"role": "system", "content": "You keep a cellar."}]

    def asked(self, turn: int) -> None:
        self.history.append({"role": "user", "content": question(turn)})

    def answered(self, turn: int) -> str:
        function: Any = {"name": "read", "description": ABOUT, "parameters": SCHEMA}
        asked: dict[str, Any] = {
            "model": "tiny",
            "messages": self.history,
            "tools": [{"type": "function", "function": function}],
            "max_completion_tokens": ANSWER,
        }
        if self.stream:
            with self.client.chat.completions.stream(**asked) as stream:
                said: Any = stream.get_final_completion()
        else:
            said = self.client.chat.completions.create(**asked)
        message = said.choices[0].message
        self.history.append(message.model_dump(include={"role", "content", "tool_calls"}))
        for call in message.tool_calls or ():
            assert json.loads(call.function.arguments) == {"path": "cellar.txt"}
            told = {"role": "tool", "tool_call_id": call.id, "content": looked(turn)}
            self.history.append(told)
        return message.content or ""


class Responses:
    """The OpenAI SDK, Responses, with the history kept by the client."""

    def __init__(self, url: str, stream: bool) -> None:
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        self.stream = stream
        self.history: list[Any] = []

    def asked(self, turn: int) -> None:
        self.history.append({"role": "user", "content": question(turn)})

    def answered(self, turn: int) -> str:
        tool = {"type": "function", "name": "read", "description": ABOUT, "parameters": SCHEMA}
        asked: dict[str, Any] = {
            "model": "tiny",
            "instructions": "You keep a cellar.",
            "input": self.history,
            "tools": [{**tool, "strict": False}],
            "max_output_tokens": ANSWER,
            "store": False,
        }
        said = self._final(asked) if self.stream else self.client.responses.create(**asked)
        called = [item for item in said.output if item.type == "function_call"]
        self.history += [item.model_dump(exclude_none=True) for item in said.output]
        for call in called:
            assert json.loads(call.arguments) == {"path": "cellar.txt"}
            told = {"type": "function_call_output", "call_id": call.call_id}
            self.history.append({**told, "output": looked(turn)})
        return str(said.output_text)

    def _final(self, asked: dict[str, Any]) -> Any:
        with self.client.responses.create(**asked, stream=True) as stream:
            ends = [event for event in stream if event.type == "response.completed"]
        return ends[0].response


class Messages:
    """The Anthropic SDK."""

    def __init__(self, url: str, stream: bool) -> None:
        self.client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        self.stream = stream
        self.history: list[Any] = []

    def asked(self, turn: int) -> None:
        self.history.append({"role": "user", "content": question(turn)})

    def answered(self, turn: int) -> str:
        asked: dict[str, Any] = {
            "model": "tiny",
            "system": "You keep a cellar.",
            "messages": self.history,
            "tools": [{"name": "read", "description": ABOUT, "input_schema": SCHEMA}],
            "max_tokens": ANSWER,
        }
        if self.stream:
            with self.client.messages.stream(**asked) as stream:
                said = stream.get_final_message()
        else:
            said = self.client.messages.create(**asked)
        called = [block for block in said.content if block.type == "tool_use"]
        blocks = [block.model_dump(exclude_none=True) for block in said.content]
        self.history.append({"role": "assistant", "content": blocks})
        results = []
        for use in called:
            assert use.input == {"path": "cellar.txt"}
            told = {"type": "tool_result", "tool_use_id": use.id, "content": looked(turn)}
            results.append(told)
        if results:
            self.history.append({"role": "user", "content": results})
        return "".join(block.text for block in said.content if block.type == "text")


def converse(talk: Talk) -> None:
    """Hold a conversation: in each turn a question, a call, its result, an answer."""
    with talk.client:
        for turn in range(TURNS):
            talk.asked(turn)
            assert not talk.answered(turn)  # it calls a tool
            assert talk.answered(turn) == tinymodel.SENTENCE


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", [Chat, Responses, Messages])
def test_a_conversation_of_five_windows_is_held_through_the_proxy_and_not_without(
    guard: Guarded, client: Callable[[str, bool], Talk], stream: bool
):
    converse(client(guard.url, stream))
    found = guard.held(f"{client.__name__} {'streamed' if stream else 'whole'}")
    assert found["requests"] == 2 * TURNS
    assert found["streamed"] == (2 * TURNS if stream else 0)
    with pytest.raises(
        (openai.BadRequestError, anthropic.BadRequestError), match="exceeds the ava"
    ):
        converse(client(guard.direct, stream))
