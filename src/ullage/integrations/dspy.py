"""DSPy: engines that guard each call of a language model, and their two parts.

An `LM` sends its requests through an engine, after its cache and its retries. DSPy keeps no state
of a conversation. Messages are converted to Chat Completions and back with DSPy's own conversion.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import dspy
from dspy.clients.engines.lm15_engine import AsyncLM15Engine, LM15Engine
from dspy.clients.lm15_boundary import request_kwargs
from dspy.lm15 import Message, Request, Response, RouterConfig, request_from_openai_chat

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_chat
from ullage.integrations.streaming import aopen_stream, open_stream

__all__ = ["find_window", "guard_lm", "make_counter", "make_tools"]

CLIENT = ("api_key", "api_base", "base_url")
"""Settings of an `LM` about its server. A custom engine has to know them instead of the `LM`."""


def write_message(message: Message) -> list[Any]:
    """Return a message as Chat Completions messages: one for each tool result."""
    made: list[Any] = request_kwargs(Request("any", (message,)), "chat")["messages"]
    return made


def read_messages(raws: Sequence[Any], source: Message | None) -> Message:
    """Return edited messages as one of DSPy's; system messages inside become developer ones."""
    given = [{**raw, "role": "developer"} if raw["role"] == "system" else raw for raw in raws]
    return request_from_openai_chat({"model": "any", "messages": given}).messages[0]


FORM = MessageForm(write_message, read_messages, frozen=True)


def find_window(model: str, **options: Any) -> int | None:
    """Return the tokens that a model takes, or None if unknown."""
    return Adapter(FORM, model, **options).open().window


def make_counter(model: str | None = None) -> Callable[[Sequence[Message]], int]:
    """Return a function that counts messages."""
    return Adapter(FORM, model).count


def guard_lm(lm: dspy.LM, name: str | None = None, **options: Any) -> dspy.LM:
    """Return a copy of a language model whose calls stay inside its window.

    `name` is the name of its one conversation; `options` are those of `ullage.Guard`.
    """
    engine = GuardedEngine(lm, name, options)
    return lm.copy(engine=engine, async_engine=AsyncGuardedEngine(engine), **dict.fromkeys(CLIENT))


def make_tools(lm: dspy.LM) -> list[dspy.Tool]:
    """Return tools that read and search the text that a guarded model was not sent."""
    made = lm.engine.adapter.make_functions(lambda: lm.engine.session)
    return [
        dspy.Tool(f, spec.name, spec.description, dict(spec.parameters["properties"]))
        for spec, f in made
    ]


class GuardedEngine:
    """An engine that sends what fits, and retries once after an overflow."""

    def __init__(self, lm: dspy.LM, name: str | None, options: dict[str, Any]) -> None:
        for told in ("function_calling", "reasoning", "response_schema"):
            setattr(self, f"supports_{told}", getattr(lm, f"supports_{told}"))
        self.supported_params = lm.supported_params
        key, url = lm.kwargs.get("api_key"), lm.kwargs.get("api_base") or lm.kwargs.get("base_url")
        found = LM15Engine(model_type=lm.model_type).resolve(lm.model)
        keys, urls = key and {found.provider: key}, url and {found.provider: url}
        self.config, self.model_type = RouterConfig(api_keys=keys, base_urls=urls), lm.model_type
        self._inner = LM15Engine(self.config, model_type=lm.model_type)
        self.adapter = Adapter(FORM, **options)
        self.session: GuardedSession[Message] = self.adapter.open(
            name, model=found.model, base_url=url, api_key=key
        )

    def complete(self, request: Request) -> Response:
        """Return the answer to a request."""
        asked = ask(request)
        send, report = (lambda fitted: self._inner.complete(shrink(request, fitted))), report_usage
        return self.session.call(send, request.messages, asked, report=report)[0]

    def stream(self, request: Request) -> Iterator[Any]:
        """Yield the events of an answer."""
        send, asked = (lambda fitted: self._inner.stream(shrink(request, fitted))), ask(request)
        events, _ = open_stream(self.session, send, request.messages, asked, report=report_usage)
        yield from events

    def close(self) -> None:
        """Release connections."""
        self._inner.close()


class AsyncGuardedEngine:
    """The async calls of an engine, with connections for each event loop."""

    def __init__(self, engine: GuardedEngine) -> None:
        self._engine, self._session = engine, engine.session
        self._inners: WeakKeyDictionary[Any, AsyncLM15Engine] = WeakKeyDictionary()

    def _find_inner(self) -> AsyncLM15Engine:
        loop, own = asyncio.get_running_loop(), self._engine
        if loop not in self._inners:
            self._inners[loop] = AsyncLM15Engine(own.config, model_type=own.model_type)
        return self._inners[loop]

    async def complete(self, request: Request) -> Response:
        """Return the answer to a request."""
        inner, asked = self._find_inner(), ask(request)
        send, report = (lambda fitted: inner.complete(shrink(request, fitted))), report_usage
        return (await self._session.acall(send, request.messages, asked, report=report))[0]

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """Yield the events of an answer."""
        inner, asked = self._find_inner(), ask(request)
        send, report = (lambda fitted: inner.stream(shrink(request, fitted))), report_usage
        started = aopen_stream(self._session, send, request.messages, asked, report=report)
        events, _ = await started
        async for event in events:
            yield event

    async def aclose(self) -> None:
        """Release this loop's connections."""
        await self._find_inner().aclose()


def shrink(request: Request, fitted: Fitted[Message]) -> Request:
    """Return a request with the messages that fit."""
    return replace(request, messages=tuple(fitted.messages))


def ask(request: Request) -> Beside:
    """Return the parts of a request other than its messages."""
    made = request_kwargs(replace(request, messages=request.messages[:1]), "chat")
    system = made["messages"][0]["content"] if request.system else None
    asked = find_output(request.config)
    return {"system": system, "tools": made.get("tools"), "reserve": asked}


def report_usage(answer: Any) -> Any:
    """Return the usage that an answer, or the end of a stream, reports."""
    used = getattr(answer, "usage", None)
    if used is None or used.input_tokens is None:
        return None
    return report_chat(used.input_tokens, used.output_tokens or 0, used.cache_read_tokens or 0)
