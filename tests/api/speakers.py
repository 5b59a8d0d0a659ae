"""Clients of other SDKs than OpenAI's and Anthropic's, each on a server of its documented shape."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import ollama
from botocore.config import Config
from google import genai
from google.genai import types
from mistralai.client import Mistral
from mistralai.client import models as mistral_types

import ullage
from tests.support import clouds, mistral
from tests.support.ollama import Ollama, Turn
from ullage import events
from ullage.core.guard.events import Event

NOTE = "wind and water were fair today, all hands well. " * 3


@dataclass(frozen=True)
class Speaker:
    """One SDK: its server, its client, its messages, and a call of it, whole or streamed.

    `ask` takes a client, a history, whether to stream, and fields of the call; it returns the
    answer. `text` returns what a whole answer says, or one event of a stream.
    """

    name: str
    awaits: bool
    run: Callable[[], AbstractContextManager[Any]]
    make: Callable[[str], Any]
    ask: Callable[..., Any]
    text: Callable[[Any], str]
    turn: Callable[[int], list[Any]]
    last: Callable[[str], Any]
    sent: Callable[[Any], list[Any]]


class Voice:
    """A wrapped client of a speaker's on its running server, and what was told."""

    def __init__(self, speaker: Speaker, server: Any, url: str, **options: Any) -> None:
        self.speaker, self.server = speaker, server
        self.told: list[Event] = []
        self.bare = speaker.make(url)
        options = {"runtime": ullage.Runtime(), "on_event": self.told.append, **options}
        self.client = ullage.wrap(self.bare, **options)
        self._runner = asyncio.Runner()

    def close(self) -> None:
        """Close the connections of the client."""
        own = getattr(self.bare, "aio", self.bare) if self.speaker.awaits else self.bare
        end = getattr(own, "aclose", None) or getattr(own, "close", None)
        done = end() if callable(end) else None
        if inspect.isawaitable(done):
            self._runner.run(_await(done))
        self._runner.close()

    def ask(self, history: list[Any], *, stream: bool, client: Any = None, **more: Any) -> str:
        """Return the text of an answer."""
        client = self.client if client is None else client
        made = self.speaker.ask(client, history, stream, more)
        if not self.speaker.awaits:
            return "".join(map(self.speaker.text, made if stream else [made]))

        async def read() -> str:
            answer = await made
            if not stream:
                return self.speaker.text(answer)
            return "".join([self.speaker.text(event) async for event in answer])

        return self._runner.run(read())

    def of(self, kind: type) -> list[Any]:
        """Return the events of a kind."""
        return [event for event in self.told if isinstance(event, kind)]

    @property
    def refused(self) -> int:
        """How often the server refused."""
        return len(self.server.refused) + getattr(self.server, "overflows", 0)

    def reports(self) -> list[int]:
        """Return the sizes that were told, of every preparation and of every report."""
        return [e.assessment.input_tokens for e in self.of(events.ContextPressure)]


@contextmanager
def speaking(speaker: Speaker, **options: Any) -> Iterator[Voice]:
    """Run a speaker's server, with a wrapped client of it, while the block lasts."""
    with speaker.run() as server:
        url = server.base_url if isinstance(server, Ollama) else server.url
        voice = Voice(speaker, server, url, **options)
        try:
            yield voice
        finally:
            voice.close()


async def _await(done: Awaitable[object]) -> None:
    await done


# --- Gemini ---------------------------------------------------------------------------------------


def _genai(url: str) -> Any:
    options = types.HttpOptions(base_url=url)
    return genai.Client(api_key="k", http_options=options)


def _ask_genai(client: Any, history: list[Any], stream: bool, more: Any) -> Any:
    models = client.models
    method = models.generate_content_stream if stream else models.generate_content
    return method(model="gemini-x", contents=history, **more)


def _ask_aio(client: Any, history: list[Any], stream: bool, more: Any) -> Any:
    return _ask_genai(client.aio, history, stream, more)


def _gemini_turn(n: int) -> list[Any]:
    call = types.FunctionCall(name="find", args={"n": n})
    response = {"name": "find", "response": {"output": f"{n}: {NOTE}"}}
    return [
        types.UserContent(parts=[types.Part(text=f"question {n}?")]),
        types.Content(role="model", parts=[types.Part(function_call=call)]),
        {"role": "user", "parts": [{"function_response": response}]},
        {"role": "model", "parts": [{"text": f"answer {n}."}]},
    ]


def _gemini_sent(server: Any) -> list[Any]:
    held: list[Any] = server.answered[-1]["contents"]
    return held


GENAI = Speaker(
    "genai", False, clouds.running, _genai, _ask_genai, lambda made: made.text or "",
    _gemini_turn, lambda text: types.UserContent(parts=[types.Part(text=text)]), _gemini_sent,
)  # fmt: skip
GENAI_AIO = Speaker(
    "genai.aio", True, clouds.running, _genai, _ask_aio, lambda made: made.text or "",
    _gemini_turn, lambda text: types.UserContent(parts=[types.Part(text=text)]), _gemini_sent,
)  # fmt: skip


# --- Bedrock --------------------------------------------------------------------------------------


def _bedrock(url: str) -> Any:
    return boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=Config(retries={"max_attempts": 1}, proxies={}),
    )


def _ask_bedrock(client: Any, history: list[Any], stream: bool, more: Any) -> Any:
    if stream:
        return client.converse_stream(modelId="claude-x", messages=history, **more)["stream"]
    return client.converse(modelId="claude-x", messages=history, **more)


def _bedrock_text(made: Any) -> str:
    if "output" in made:
        return "".join(block["text"] for block in made["output"]["message"]["content"])
    return str(made.get("contentBlockDelta", {}).get("delta", {}).get("text", ""))


def _bedrock_turn(n: int) -> list[Any]:
    use = {"toolUseId": f"t{n}", "name": "find", "input": {"n": n}}
    result = {"toolUseId": f"t{n}", "content": [{"text": f"{n}: {NOTE}"}]}
    return [
        {"role": "user", "content": [{"text": f"question {n}?"}]},
        {"role": "assistant", "content": [{"toolUse": use}]},
        {"role": "user", "content": [{"toolResult": result}]},
        {"role": "assistant", "content": [{"text": f"answer {n}."}]},
    ]


BEDROCK = Speaker(
    "bedrock", False, clouds.running, _bedrock, _ask_bedrock, _bedrock_text, _bedrock_turn,
    lambda text: {"role": "user", "content": [{"text": text}]},
    lambda server: server.answered[-1]["messages"],
)  # fmt: skip


# --- Ollama ---------------------------------------------------------------------------------------


def _run_ollama() -> Ollama:
    return Ollama([Turn(clouds.LONG.strip())], window=600)


def _ask_ollama(client: Any, history: list[Any], stream: bool, more: Any) -> Any:
    return client.chat("qwen3:14b", history, stream=stream, **more)


def _ollama_turn(n: int) -> list[Any]:
    function = ollama.Message.ToolCall.Function(name="find", arguments={"n": n})
    call = ollama.Message.ToolCall(function=function)
    return [
        {"role": "user", "content": f"question {n}?"},
        ollama.Message(role="assistant", content="", tool_calls=[call]),
        {"role": "tool", "content": f"{n}: {NOTE}", "tool_name": "find"},
        ollama.Message(role="assistant", content=f"answer {n}."),
    ]


def _ollama_sent(server: Any) -> list[Any]:
    held: list[Any] = server.asked[-1]["messages"]
    return held


OLLAMA = Speaker(
    "ollama", False, _run_ollama, lambda url: ollama.Client(host=url), _ask_ollama,
    lambda made: made.message.content or "", _ollama_turn,
    lambda text: {"role": "user", "content": text}, _ollama_sent,
)  # fmt: skip
OLLAMA_ASYNC = Speaker(
    "ollama.async", True, _run_ollama, lambda url: ollama.AsyncClient(host=url), _ask_ollama,
    lambda made: made.message.content or "", _ollama_turn,
    lambda text: {"role": "user", "content": text}, _ollama_sent,
)  # fmt: skip


# --- Mistral --------------------------------------------------------------------------------------


def _mistral(url: str) -> Any:
    return Mistral(api_key="k", server_url=url)


def _ask_mistral(client: Any, history: list[Any], stream: bool, more: Any) -> Any:
    method = client.chat.stream if stream else client.chat.complete
    return method(model="m", messages=history, **more)


def _ask_mistral_async(client: Any, history: list[Any], stream: bool, more: Any) -> Any:
    method = client.chat.stream_async if stream else client.chat.complete_async
    return method(model="m", messages=history, **more)


def _mistral_text(made: Any) -> str:
    choice = made.data.choices[0] if hasattr(made, "data") else made.choices[0]
    return str((choice.delta if hasattr(choice, "delta") else choice.message).content or "")


def _mistral_turn(n: int) -> list[Any]:
    function = mistral_types.FunctionCall(name="find", arguments=json.dumps({"n": n}))
    call = mistral_types.ToolCall(id=f"call{n:05}", function=function)
    return [
        mistral_types.UserMessage(content=f"question {n}?"),
        mistral_types.AssistantMessage(content="", tool_calls=[call]),
        mistral_types.ToolMessage(content=f"{n}: {NOTE}", tool_call_id=f"call{n:05}", name="find"),
        {"role": "assistant", "content": f"answer {n}."},
    ]


MISTRAL = Speaker(
    "mistral", False, mistral.running, _mistral, _ask_mistral, _mistral_text, _mistral_turn,
    lambda text: mistral_types.UserMessage(content=text),
    lambda server: server.answered[-1]["messages"],
)  # fmt: skip
MISTRAL_ASYNC = Speaker(
    "mistral.async", True, mistral.running, _mistral, _ask_mistral_async, _mistral_text,
    _mistral_turn, lambda text: mistral_types.UserMessage(content=text),
    lambda server: server.answered[-1]["messages"],
)  # fmt: skip

SPEAKERS = (GENAI, GENAI_AIO, BEDROCK, OLLAMA, OLLAMA_ASYNC, MISTRAL, MISTRAL_ASYNC)
