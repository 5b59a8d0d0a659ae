"""OpenAI Agents SDK: a model that guards each call of another, and two parts of it.

The SDK's `call_model_input_filter` sees a request, but neither its answer nor its error. A `Model`
sees all three, whole and streamed. The guard keeps its state in a `Session` of the SDK, separate
from the history's session. It reads items in the form of the Responses API for every model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agents import FunctionTool, Model, ModelResponse
from agents.handoffs import Handoff
from agents.memory import Session
from agents.tool_context import ToolContext

from ullage.core.dialects import names
from ullage.core.session.tools import Spec
from ullage.integrations.adapter import TOOLS, Adapter, Beside, Fitted, MessageForm
from ullage.integrations.reports import find_output, report_responses
from ullage.integrations.streaming import aopen_stream

__all__ = ["AgentsGuard", "make_counter", "make_tools", "make_trigger"]

FORM: MessageForm[Any] = MessageForm(
    lambda item: [item], lambda raws, source: raws[0], names.OPENAI_RESPONSES
)

ASKED = ("model_settings", "tools", "output_schema", "handoffs", "tracing")
"""Positional arguments of a model call after instructions and items."""


def make_counter(model: str | None = None) -> Callable[[Sequence[Any]], int]:
    """Return a function that counts items, for filters and callbacks of the SDK."""
    return Adapter(FORM, model).count


def make_trigger(
    model: str, share: float = 0.8, **options: Any
) -> Callable[[dict[str, Any]], bool]:
    """Return a `should_trigger_compaction=` for the SDK's compacting session.

    It is true when the history fills more than `share` of the window, and never if the window is
    unknown.
    """
    adapter = Adapter(FORM, model, **options)

    def is_due(context: dict[str, Any]) -> bool:
        window = adapter.open().window
        return window is not None and adapter.count(context["session_items"]) > share * window

    return is_due


def make_tools() -> list[FunctionTool]:
    """Return tools that read and search the text that a guard left out of the conversation."""
    return [_make_tool(spec) for spec in TOOLS]


class AgentsGuard(Model):
    """A model for one conversation whose calls stay inside its window.

    `state` is a session of the SDK, under its own name, for the guard's state; `options` are those
    of `ullage.Guard`. Give the model to a run: `RunConfig(model=AgentsGuard(model))`.
    """

    def __init__(self, wrapped: Model, state: Session | None = None, **options: Any) -> None:
        self.wrapped = wrapped
        self._state = state
        client: Any = getattr(wrapped, "_client", None)
        self.adapter = Adapter(FORM, options.pop("model", None), **options)
        self.session = self.adapter.open(
            getattr(state, "session_id", None),
            model=getattr(wrapped, "model", None),
            base_url=client and str(client.base_url),
            api_key=client and client.api_key,
        )

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        """Send what fits, retry once after an overflow, and keep the compactions."""
        asked = {**dict(zip(ASKED, args, strict=False)), **kwargs}
        items, beside = await self._begin(system_instructions, input, asked)

        async def send(fitted: Fitted[Any]) -> ModelResponse:
            return await self.wrapped.get_response(system_instructions, fitted.messages, **asked)

        answer, fitted = await self.session.acall(send, items, beside, report=_report)
        await self._keep(fitted)
        return answer

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Do as `get_response`, streamed: a refusal shows at the first event, usage at the last."""
        asked = {**dict(zip(ASKED, args, strict=False)), **kwargs}
        items, beside = await self._begin(system_instructions, input, asked)

        def start(fitted: Fitted[Any]) -> AsyncIterator[Any]:
            return self.wrapped.stream_response(system_instructions, fitted.messages, **asked)

        events, fitted = await aopen_stream(self.session, start, items, beside, report=_report)
        await self._keep(fitted)
        async for event in events:
            yield event

    async def close(self) -> None:
        """Release the model's resources."""
        await self.wrapped.close()

    def get_retry_advice(self, request: Any) -> Any:
        """Return the model's own advice."""
        return self.wrapped.get_retry_advice(request)

    async def _begin(
        self, system: Any, items: Any, asked: dict[str, Any]
    ) -> tuple[list[Any], Beside]:
        if self._state is not None:
            kept: Any = await self._state.get_items(1)
            self.session.load(kept[0] if kept else None)
        given = [{"role": "user", "content": items}] if isinstance(items, str) else items
        return given, {
            "tools": self.adapter.define([*asked["tools"], *asked["handoffs"]], _define),
            "system": system,
            "reserve": find_output(asked["model_settings"]),
        }

    async def _keep(self, fitted: Fitted[Any]) -> None:
        state: Any = self.session.dump() if fitted.is_new else None
        if state is not None and self._state is not None:
            await self._state.clear_session()
            await self._state.add_items([state])


def _make_tool(spec: Spec) -> FunctionTool:
    async def answer(context: ToolContext[Any], arguments: str) -> str:
        asked: Any = [
            getattr(context.run_config, "model", None),
            getattr(context.agent, "model", None),
        ]
        found = [model for model in asked if isinstance(model, AgentsGuard)]
        if not found:
            return f"{spec.name} has nothing to read: this run has no AgentsGuard for its model"
        return found[0].session.answer(spec.name, arguments)

    return FunctionTool(
        spec.name, spec.description, dict(spec.parameters), answer, strict_json_schema=False
    )


def _define(tool: Any) -> dict[str, Any]:
    if isinstance(tool, Handoff):
        name, told, schema = tool.tool_name, tool.tool_description, tool.input_json_schema
    else:
        name, told = tool.name, getattr(tool, "description", "")
        schema = getattr(tool, "params_json_schema", {})
    return {"type": "function", "name": name, "description": told, "parameters": schema}


def _report(answer: Any) -> Any:
    usage = getattr(getattr(answer, "response", answer), "usage", None)
    if not usage or not usage.input_tokens:
        return None
    cached = getattr(usage.input_tokens_details, "cached_tokens", 0) or 0
    return report_responses(usage.input_tokens, usage.output_tokens, cached)
