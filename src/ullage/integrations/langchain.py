"""LangChain and LangGraph: a middleware that guards each model call of an agent, and its two parts.

The guard keeps its state in the graph's state, so a checkpointer carries it to the next process.
LangChain's own conversion turns its messages into Chat Completions messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, NotRequired

from langchain.agents.middleware import types as lc
from langchain_core import messages as lm
from langchain_core.language_models import ModelProfile
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    MessageLikeRepresentation,
    convert_to_messages,
)
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.types import Command

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_chat

__all__ = ["ContextGuard", "make_counter", "make_profile"]


ROLES: Final[Mapping[type, str]] = {
    lm.HumanMessage: "user",
    lm.AIMessage: "assistant",
    lm.SystemMessage: "system",
    lm.ToolMessage: "tool",
}


def write_message(message: BaseMessage) -> list[Any]:
    """Return a message as Chat Completions has it; simple text messages take a shortcut."""
    role, content = ROLES.get(type(message)), message.content
    more = message.name or any(message.additional_kwargs.values())
    if role and isinstance(content, str) and not more:
        raw: dict[str, Any] = {"role": role}
        if isinstance(message, AIMessage) and message.tool_calls:
            raw["tool_calls"] = [_write_call(call) for call in message.tool_calls]
        if isinstance(message, lm.ToolMessage):
            raw["tool_call_id"] = message.tool_call_id
        return [{**raw, "content": content}]
    made = convert_to_openai_messages(message)
    return made if isinstance(made, list) else [made]


def _write_call(call: Any) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["args"], ensure_ascii=False)}
    return {"type": "function", "id": call["id"], "function": function}


def read_messages(raws: Sequence[Any], source: BaseMessage | None) -> BaseMessage:
    """Return edited messages as one of LangChain's; parts without edits stay as they were."""
    made = convert_to_messages(raws)[0]
    if source is None:
        return made
    calls = {"tool_calls": made.tool_calls} if isinstance(made, AIMessage) else {}
    return source.model_copy(update={"content": made.content, **calls})


FORM = MessageForm(write_message, read_messages)


def make_profile(model: str, **options: Any) -> ModelProfile:
    """Return a `profile=` for a chat model: its window, or an empty profile if unknown."""
    window = Adapter(FORM, model, **options).open().window
    return ModelProfile() if window is None else ModelProfile(max_input_tokens=window)


def make_counter(
    model: str | None = None,
) -> Callable[[Iterable[MessageLikeRepresentation]], int]:
    """Return a `token_counter=` for `trim_messages` and LangChain's middleware."""
    adapter = Adapter(FORM, model)
    return lambda messages: adapter.count(convert_to_messages(messages))


class GuardState(lc.AgentState[Any]):
    """The guard's part of a graph's state."""

    ullage: NotRequired[Annotated[dict[str, Any], lc.PrivateStateAttr]]


class ContextGuard(lc.AgentMiddleware[Any, Any, Any]):
    """Keep each model call of an agent inside its window; `options` are those of `ullage.Guard`.

    With `recall` the model gets tools that read and search the text that was left out. The guard
    writes its compactions to the state when they change.
    """

    state_schema = GuardState

    def __init__(self, model: str | None = None, *, recall: bool = True, **options: Any) -> None:
        super().__init__()
        self.adapter = Adapter(FORM, model, **options)
        made = self.adapter.make_functions(self._open) if recall else []
        make = StructuredTool.from_function
        self.tools = [make(function, args_schema=dict(spec.parameters)) for spec, function in made]

    def wrap_model_call(self, request: lc.ModelRequest[Any], handler: Any) -> Any:
        """Send what fits, and retry once after an overflow."""

        def send(fitted: Fitted[BaseMessage]) -> Any:
            return handler(request.override(messages=fitted.messages))

        session, beside = self._begin(request)
        return _end(session, *session.call(send, request.messages, beside, report=_report))

    async def awrap_model_call(self, request: lc.ModelRequest[Any], handler: Any) -> Any:
        """Do as `wrap_model_call`, awaited."""

        async def send(fitted: Fitted[BaseMessage]) -> Any:
            return await handler(request.override(messages=fitted.messages))

        session, beside = self._begin(request)
        return _end(session, *await session.acall(send, request.messages, beside, report=_report))

    def _open(self, model: Any = None) -> GuardedSession[BaseMessage]:
        thread = (get_config().get("configurable") or {}).get("thread_id")
        return self.adapter.open(None if thread is None else str(thread), **_describe(model))

    def _begin(self, request: lc.ModelRequest[Any]) -> tuple[GuardedSession[BaseMessage], Beside]:
        session, system = self._open(request.model), request.system_message
        session.load(request.state.get("ullage"))
        asked = find_output(request.model_settings, *_list_layers(request.model))
        return session, {
            "tools": self.adapter.define(request.tools, convert_to_openai_tool),
            "system": None if system is None else str(system.text),
            "reserve": asked,
        }


def _list_layers(model: Any) -> list[Any]:
    """Return a model and the models it is bound to, outermost first, each after its settings."""
    made: list[Any] = []
    while model is not None:
        made += [getattr(model, "kwargs", None), getattr(model, "model_kwargs", None), model]
        model = getattr(model, "bound", None)
    return [layer for layer in made if layer is not None]


def _describe(model: Any) -> dict[str, Any]:
    """Return what a chat model reports about itself, as arguments of `Guard`."""
    layers = _list_layers(model)

    def find(*names: str) -> Any:
        found = (getattr(layer, name, None) for layer in layers for name in names)
        return next((value for value in found if value), None)

    keys = {
        name
        for layer in layers
        for name in getattr(type(layer), "model_fields", ())
        if name.endswith("api_key") and getattr(layer, name, None)
    }
    client: Any = find("root_client")  # OpenAI's client, with the settings of the environment
    url = getattr(client, "base_url", None)
    told = find("openai_api_base", "anthropic_api_url", "base_url")
    return {
        "model": find("model_name", "model"),
        "base_url": told or (None if url is None else str(url)),
        "api_key": find(*keys) if len(keys) == 1 else getattr(client, "api_key", None),
        "window": find("num_ctx"),
    }


def _report(answer: lc.ModelResponse[Any]) -> Any:
    said = getattr(answer.result[0], "usage_metadata", None)
    cached = (said or {}).get("input_token_details", {}).get("cache_read", 0)
    return said and report_chat(said["input_tokens"], said["output_tokens"], cached)


def _end(session: GuardedSession[BaseMessage], answer: Any, fitted: Fitted[BaseMessage]) -> Any:
    state = session.dump() if fitted.is_new else None
    kept = None if state is None else Command(update={"ullage": state})
    return lc.ExtendedModelResponse(answer, kept)
