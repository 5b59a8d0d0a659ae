"""llm (by Simon Willison): guarded models, as a plugin and in programs, and commands.

The guard keeps its state in a table of llm's log database, if llm logs, next to the conversation.
The log stays whole: only the request is reduced to what fits.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import click
import llm
import llm.cli  # its names only when they are called: it loads plugins halfway through itself
import sqlite_utils
from llm.parts import Message, TextPart, ToolCallPart, ToolResultPart
from llm.plugins import pm

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_chat
from ullage.integrations.streaming import aopen_stream, open_stream

__all__ = ["PLUGIN", "LlmGuard", "find_window", "make_counter"]

TABLE: Final = "ullage_sessions"
"""The table of llm's log database: one row per conversation, with its state as JSON."""

PREFIX: Final = "ullage/"


def write_message(message: Message) -> list[Any]:
    """Return a message as Chat Completions has it, with a message for each tool result."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    calls = [_write_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
    results = [
        {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.output}
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    if results and not texts and not calls:
        return results
    named = {"tool_calls": calls} if calls else {}
    return [{"role": message.role, "content": "".join(texts), **named}, *results]


def _write_call(part: ToolCallPart) -> dict[str, Any]:
    function = {"name": part.name, "arguments": json.dumps(part.arguments)}
    return {"id": part.tool_call_id, "type": "function", "function": function}


def read_messages(raws: Sequence[Any], source: Message | None) -> Message:
    """Return edited messages as one of llm's; parts without edits stay as they were."""
    text = "".join(raw["content"] or "" for raw in raws if raw["role"] != "tool")
    if source is None:
        return Message(raws[0]["role"], [TextPart(text)])
    results = {raw["tool_call_id"]: raw["content"] for raw in raws if raw["role"] == "tool"}
    calls = {c["id"]: c["function"] for raw in raws for c in raw.get("tool_calls") or ()}
    texts = [text] if text else []

    def edit(part: Any) -> list[Any]:
        if isinstance(part, TextPart):
            return [replace(part, text=texts.pop())] if texts else []
        if isinstance(part, ToolResultPart):
            left = results.get(part.tool_call_id)
            return [] if left is None else [replace(part, output=left)]
        if isinstance(part, ToolCallPart):
            asked = calls.get(part.tool_call_id)
            return (
                [] if asked is None else [replace(part, arguments=json.loads(asked["arguments"]))]
            )
        return [part]

    parts = [made for part in source.parts for made in edit(part)]
    return replace(source, parts=[*map(TextPart, texts), *parts])


FORM = MessageForm(write_message, read_messages)


def find_window(model: Any, **options: Any) -> int | None:
    """Return the tokens that a model takes as input, or None if unknown."""
    return Adapter(FORM, **options).open(**_describe(model)).window


def make_counter(model: str | None = None) -> Callable[[Sequence[Message]], int]:
    """Return a function that counts messages."""
    return Adapter(FORM, model).count


class LlmGuard:
    """Keep each call of a model inside its window; `options` are those of `ullage.Guard`.

    `guard.wrap(llm.get_model(...))` is a new model whose name begins with `ullage/`. Give the model
    `guard.tools` if it should read and search the text that was left out.
    """

    def __init__(self, model: str | None = None, **options: Any) -> None:
        self.adapter = Adapter(FORM, model, **options)
        self._current: ContextVar[Any] = ContextVar("session")
        self.tools = [
            llm.Tool(spec.name, spec.description, dict(spec.parameters), function)
            for spec, function in self.adapter.make_functions(self._current.get)
        ]

    def wrap(self, model: Any) -> Any:
        """Return a guarded copy: a subclass of the model's class, with the same options and key."""
        mixin = _AsyncGuarded if isinstance(model, llm.AsyncModel | llm.AsyncKeyModel) else _Guarded
        made = copy(model)
        made.__class__ = type(type(model).__name__, (mixin, type(model)), {})
        made.inner, made.guard, made.model_id = model, self, PREFIX + model.model_id
        return made

    def ask(self, model: Any, prompt: Any, given: dict[str, Any]) -> Any:
        """Return the session of a conversation with its saved state, and its call's arguments."""
        conversation = given.get("conversation")
        name = None if conversation is None else conversation.id
        session = self.adapter.open(name, **_describe(model), api_key=given.get("key"))
        if name is not None and llm.cli.logs_db_path().exists():
            with sqlite_utils.Database(llm.cli.logs_db_path()) as db:
                rows = db[TABLE].rows_where("id = ?", [name]) if db[TABLE].exists() else ()
                session.load(next((json.loads(row["state"]) for row in rows), None))
        self._current.set(session)

        def send(fitted: Fitted[Message]) -> Any:
            made = copy(prompt)
            made._explicit_messages = fitted.messages
            return model.execute(made, **given)

        return session, (send, prompt.messages, _find_beside(prompt))

    def keep(self, session: GuardedSession[Message], fitted: Fitted[Message]) -> None:
        """Write the compactions into llm's log database if logging is on."""
        state = session.dump() if fitted.is_new and llm.cli.logs_on() else None
        if state is not None:
            with sqlite_utils.Database(llm.cli.logs_db_path()) as db:
                db[TABLE].upsert({"id": session.name, "state": json.dumps(state)}, pk="id")


class _Guarded:
    """A model's class, guarded."""

    def execute(self: Any, prompt: Any, **given: Any) -> Iterator[Any]:
        session, asked = self.guard.ask(self.inner, prompt, given)
        events, fitted = open_stream(session, *asked, report=lambda _: _report(given["response"]))
        self.guard.keep(session, fitted)
        yield from events


class _AsyncGuarded:
    """An async model's class, guarded."""

    async def execute(self: Any, prompt: Any, **given: Any) -> AsyncIterator[Any]:
        session, asked = self.guard.ask(self.inner, prompt, given)
        events, fitted = await aopen_stream(
            session, *asked, report=lambda _: _report(given["response"])
        )
        self.guard.keep(session, fitted)
        async for event in events:
            yield event


class Plugin:
    """The plugin that llm loads: `ullage/` before each model's name, two tools, and commands."""

    __name__ = "ullage"  # `llm plugins` needs it, as of a module

    @cached_property
    def guard(self) -> LlmGuard:
        """The guard of the process."""
        return LlmGuard()

    @llm.hookimpl(trylast=True)
    def register_models(self, register: Any, model_aliases: Any) -> None:
        """Register each model of the other plugins once more, guarded."""

        def add(model: Any, async_model: Any = None, aliases: Any = None) -> None:
            wrap = self.guard.wrap
            named = [PREFIX + alias for alias in aliases or ()]
            register(wrap(model), async_model and wrap(async_model), aliases=named)

        others = pm.subset_hook_caller("register_models", remove_plugins=[self])
        others(register=add, model_aliases=model_aliases)

    @llm.hookimpl
    def register_tools(self, register: Any) -> None:
        """Register the tools that read and search the text that was left out."""
        for tool in self.guard.tools:
            register(tool)

    @llm.hookimpl
    def register_commands(self, cli: Any) -> None:
        """Add `llm ullage`."""

        @cli.group(name="ullage")
        def group() -> None:
            """Context windows of models and conversations."""

        @group.command()
        @click.argument("model")
        def window(model: str) -> None:
            """Print the tokens that MODEL takes as input."""
            click.echo(_show(find_window(_find_inner(llm.get_model(model)))))

        @group.command()
        @click.argument("conversation", required=False)
        def context(conversation: str | None) -> None:
            """Print how full the window is with CONVERSATION, or the last one, as logged."""
            found = llm.cli.load_conversation(conversation)
            if found is None:
                raise click.ClickException("there is no conversation in llm's logs")
            model = _find_inner(found.model)
            chain = found.prompt().prompt.messages  # building the prompt sends nothing
            used = make_counter(_describe(model)["model"])(chain)
            click.echo(f"{used:,} of {_show(find_window(model))} tokens ({model.model_id})")


PLUGIN: Final = Plugin()
"""The entry point."""


def _show(window: int | None) -> str:
    return "an unknown number of" if window is None else f"{window:,}"


def _find_inner(model: Any) -> Any:
    return getattr(model, "inner", model)


def _describe(model: Any) -> dict[str, Any]:
    name = getattr(model, "model_name", None) or model.model_id
    known = os.environ.get("OPENAI_BASE_URL") if hasattr(model, "api_base") else None
    return {"model": name, "base_url": getattr(model, "api_base", None) or known}


def _find_beside(prompt: Any) -> Beside:
    named = [
        {"name": t.name, "description": t.description or "", "parameters": t.input_schema}
        for t in prompt.tools
        if isinstance(t, llm.Tool)
    ]
    tools = [{"type": "function", "function": function} for function in named]
    return {"tools": tools or None, "reserve": find_output(prompt.options)}


def _report(response: Any) -> Any:
    if not response.input_tokens:
        return None
    cached = (response.token_details or {}).get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return report_chat(response.input_tokens, response.output_tokens or 0, cached)
