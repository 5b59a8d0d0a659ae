"""What tests of wrapped clients talk with: one client of a dialect, and long histories for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Self

import anthropic
import openai

from tests.voyage import of
from ullage import events
from ullage.api.wrap import wrap
from ullage.core.guard.events import Event
from ullage.runtime import Runtime

DIALECTS = ("chat", "responses", "messages")
TEXT = "wind and water were fair today, all hands well. " * 14
CLIENTS = {
    ("chat", False): openai.OpenAI,
    ("chat", True): openai.AsyncOpenAI,
    ("responses", False): openai.OpenAI,
    ("responses", True): openai.AsyncOpenAI,
    ("messages", False): anthropic.Anthropic,
    ("messages", True): anthropic.AsyncAnthropic,
}
REFUSED = (openai.BadRequestError, anthropic.BadRequestError)


class Talk:
    """One client of a dialect, bare and wrapped, that blocks or awaits."""

    def __init__(self, url: str, dialect: str, awaits: bool, **options: Any) -> None:
        root = url.removesuffix("/v1") if dialect == "messages" else url
        self.dialect = dialect
        self.told: list[Event] = []
        self.bare: Any = CLIENTS[dialect, awaits](base_url=root, api_key="k", max_retries=0)
        options = {"runtime": Runtime(), "on_event": self.told.append, **options}
        self.client = wrap(self.bare, **options)
        self._runner = asyncio.Runner() if awaits else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.done(self.bare.close())
        if self._runner is not None:
            self._runner.close()

    def done(self, value: Any) -> Any:
        """Return what was returned, or awaited."""
        return value if self._runner is None else self._runner.run(value)

    def part(self, client: Any = None) -> Any:
        """Return the endpoint of the dialect."""
        client = client if client is not None else self.client
        return client.chat.completions if self.dialect == "chat" else getattr(client, self.dialect)

    def fields(self, history: Iterable[Any], **more: Any) -> dict[str, Any]:
        said = "input" if self.dialect == "responses" else "messages"
        most = {"chat": "max_completion_tokens", "responses": "max_output_tokens"}
        return {"model": "tiny", said: history, most.get(self.dialect, "max_tokens"): 8, **more}

    def read(self, stream: Any) -> list[Any]:
        """Return all events of a stream."""
        if self._runner is None:
            return list(stream)

        async def reading() -> list[Any]:
            return [event async for event in stream]

        read: list[Any] = self.done(reading())
        return read

    def within(self, manager: Any, *, watched: bool = True) -> tuple[Any, list[Any]]:
        """Enter a context manager of the client's; return what it gave, and its events."""
        if self._runner is None:
            with manager as entered:
                return entered, list(entered) if watched else []

        async def entering() -> tuple[Any, list[Any]]:
            async with manager as entered:
                return entered, [event async for event in entered] if watched else []

        found: tuple[Any, list[Any]] = self.done(entering())
        return found

    def notices(self) -> list[str]:
        """Return what was told beside the pressure."""
        told = [notice.text for notice in of(events.Notice, self.told)]
        return [text for text in told if not text.startswith("Context window at")]

    def sizes(self) -> list[int]:
        """Return the sizes told: one for each preparation, and one for each report."""
        return [e.assessment.input_tokens or 0 for e in of(events.ContextPressure, self.told)]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def step(dialect: str, n: int) -> list[Any]:
    """Return a tool call and its result, about 160 tokens."""
    report, call = f"Record {n}: {TEXT}", f"call_{n}"
    if dialect == "chat":
        function = {"name": "look", "arguments": '{"n": 1}'}
        return [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call, "content": report},
        ]
    if dialect == "responses":
        return [
            {"type": "function_call", "call_id": call, "name": "look", "arguments": '{"n": 1}'},
            {"type": "function_call_output", "call_id": call, "output": report},
        ]
    use = {"type": "tool_use", "id": call, "name": "look", "input": {"n": n}}
    return [
        {"role": "assistant", "content": [use]},
        user([{"type": "tool_result", "tool_use_id": call, "content": report}]),  # type: ignore[arg-type]  # blocks
    ]


def answered(dialect: str, n: int) -> list[Any]:
    said = {"role": "assistant", "content": f"Item {n} is in the log."}
    typed = {"type": "message", **said} if dialect == "responses" else said
    return [typed, user(f"Go on with item {n + 1}, please.")]


def history_of(dialect: str, turns: int) -> list[Any]:
    history: list[Any] = [user("The codeword is marlin. Keep the log for me.")]
    for n in range(turns):
        history += step(dialect, n) + answered(dialect, n)
    return history


def tools_of(dialect: str) -> list[Any]:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    if dialect == "chat":
        return [{"type": "function", "function": {"name": "look", "parameters": schema}}]
    if dialect == "responses":
        return [{"type": "function", "name": "look", "parameters": schema, "strict": False}]
    return [{"name": "look", "input_schema": schema}]
