"""CrewAI: an LLM that guards each of its calls, and its two parts.

CrewAI's hook before a call edits the list that the agent continues with, and it sees no error. So
the LLM itself is guarded: the agent's stored messages stay whole, and a refusal is recovered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from crewai.llms.base_llm import BaseLLM
from crewai.tools import BaseTool, tool
from crewai.types.usage_metrics import UsageMetrics

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_chat

__all__ = ["CrewGuard", "find_window", "make_counter"]

Message = dict[str, Any]


def read_message(raws: Sequence[Any], source: Message | None) -> Message:
    """Return an edited message; fields of CrewAI alone (files, cache marks) stay as they were."""
    return {**(source or {}), **raws[0]}


FORM: MessageForm[Message] = MessageForm(lambda message: [message], read_message)


def find_window(llm: BaseLLM, **options: Any) -> int | None:
    """Return the tokens that an LLM takes as input, or None if unknown."""
    return Adapter(FORM, **options).open(**_describe(llm)).window


def make_counter(model: str | None = None) -> Callable[[Sequence[Message] | str], int]:
    """Return a function that counts messages, as an LLM's `get_input_tokens_count` does."""
    adapter = Adapter(FORM, model)
    return lambda messages: adapter.count(_list_messages(messages))


class CrewGuard:
    """Keep each call of an LLM inside its window; `options` are those of `ullage.Guard`.

    `Agent(llm=guard.wrap(llm), tools=guard.tools)`. A guard with a `name` is one conversation:
    `guard.session` then gives its state (`dump`, `load`), for the state of a flow.
    """

    def __init__(
        self, model: str | None = None, *, name: str | None = None, **options: Any
    ) -> None:
        self.adapter = Adapter(FORM, model, **options)
        self.name = name
        self.usage: ContextVar[list[Any]] = ContextVar("usage")
        self._llm: BaseLLM | None = None
        made = self.adapter.make_functions(lambda: self.session)
        self.tools: list[BaseTool] = [tool(spec.name)(function) for spec, function in made]

    @property
    def session(self) -> GuardedSession[Message]:
        """The conversation with the LLM that was wrapped last."""
        return self.adapter.open(self.name, **({} if self._llm is None else _describe(self._llm)))

    def wrap(self, llm: BaseLLM) -> BaseLLM:
        """Return a guarded copy of the LLM: a subclass of its class, with the same client."""
        self._llm = llm
        made = llm.model_copy()
        kind: Any = type(type(llm).__name__, (_Guarded, type(llm)), {"find_guard": lambda _: self})
        object.__setattr__(made, "__class__", kind)
        return made

    def begin(self, llm: BaseLLM) -> GuardedSession[Message]:
        """Return the session of a call, and forget the usage of earlier calls."""
        self.usage.set([])
        return self.adapter.open(self.name, **_describe(llm))

    def report(self, _: Any) -> Any:
        """Return the usage that a call reported."""
        last = self.usage.get()[-1:]
        usage = UsageMetrics.from_provider_dict(last[0]) if last else None
        return usage and report_chat(
            usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens
        )


class _Guarded:
    """An LLM's class, guarded. It reports no overflow, so its agent never summarises."""

    def call(self: Any, messages: Any, tools: Any = None, *args: Any, **options: Any) -> Any:
        guard, send = self.find_guard(), super().call
        answer, _ = guard.begin(self).call(
            lambda fitted: send(fitted.messages, tools, *args, **options),
            _list_messages(messages),
            _find_beside(self, tools),
            report=guard.report,
        )
        return answer

    async def acall(self: Any, messages: Any, tools: Any = None, *args: Any, **options: Any) -> Any:
        guard, send = self.find_guard(), super().acall

        async def asend(fitted: Fitted[Message]) -> Any:
            return await send(fitted.messages, tools, *args, **options)

        answer, _ = await guard.begin(self).acall(
            asend, _list_messages(messages), _find_beside(self, tools), report=guard.report
        )
        return answer

    def get_context_window_size(self: Any) -> int:
        return self.find_guard().begin(self).window or super().get_context_window_size()

    def get_input_tokens_count(self: Any, messages: Any, *_: Any, **__: Any) -> int:
        return self.find_guard().adapter.count(_list_messages(messages), model=self.model)

    def is_context_window_overflowing_threshold(self: Any, *_: Any, **__: Any) -> bool:
        return False

    def _track_token_usage_internal(self: Any, usage_data: Any) -> None:
        self.find_guard().usage.get([]).append(usage_data)
        super()._track_token_usage_internal(usage_data)


def _describe(llm: BaseLLM) -> dict[str, Any]:
    known = os.environ.get("OPENAI_BASE_URL") if llm.provider == "openai" else None
    return {"model": llm.model, "base_url": llm.base_url or known, "api_key": llm.api_key}


def _find_beside(llm: Any, tools: Any) -> Beside:
    return {"tools": tools, "reserve": find_output(llm)}


def _list_messages(messages: Any) -> list[Message]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
