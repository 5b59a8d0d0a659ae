"""Pydantic AI: a capability that guards each model request of an agent, and its two parts.

The guard wraps the model that sends the request (`WrapperModel`), so that whole answers, streams
and every attempt of a fallback take the same path. It keeps its state in the metadata of the
answers: the framework stores them with its history and sends them to nobody. Messages are read as
Chat Completions messages, one for each part of a request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from pydantic_ai import RunContext, Tool
from pydantic_ai import messages as kinds
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.toolsets import FunctionToolset

from ullage.core.session.tools import Spec
from ullage.integrations.adapter import TOOLS, Adapter, Beside, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_chat

__all__ = ["GuardedModel", "PydanticGuard", "make_counter", "make_profile"]

P = TypeVar("P")

KEY = "ullage"
"""The key of the state in the metadata of an answer."""

SENT = ("system-prompt", "user-prompt", "tool-return", "retry-prompt", "retry-feedback")
"""Kinds of request parts that a model reads; the others are the framework's own notes."""


def write_item(item: Any) -> dict[str, Any]:
    """Return a piece of a prompt as a content part of a message."""
    if isinstance(item, str) or hasattr(item, "content"):
        return {"type": "text", "text": getattr(item, "content", item)}
    url = getattr(item, "url", None) or getattr(item, "data_uri", None) or item.file_id
    is_image = item.kind == "image-url" or getattr(item, "is_image", False)
    kind = "image_url" if is_image else "file"
    return {"type": kind, kind: {"url" if kind == "image_url" else "file_data": url}}


def write_part(part: Any) -> dict[str, Any]:
    """Return a part of a request as one message."""
    if getattr(part, "tool_name", None):  # a result, or a request to call again instead of one
        is_result = hasattr(part, "model_response_str")
        content = part.model_response_str() if is_result else part.model_response()
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
    if isinstance(part, kinds.SystemPromptPart):
        return {"role": "system", "content": part.content}
    said = part.content if isinstance(part, kinds.UserPromptPart) else part.model_response()
    if not isinstance(said, str):
        said = [write_item(item) for item in said if not isinstance(item, kinds.CachePoint)]
    return {"role": "user", "content": said}


def write_message(message: kinds.ModelMessage) -> list[Any]:
    """Return a message as Chat Completions has it."""
    if isinstance(message, kinds.ModelRequest):
        return [write_part(part) for part in message.parts if part.part_kind in SENT]
    made: dict[str, Any] = {"role": "assistant", "content": None}
    for part in message.parts:
        if isinstance(part, kinds.ToolCallPart):
            function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
            call = {"id": part.tool_call_id, "type": "function", "function": function}
            made.setdefault("tool_calls", []).append(call)
        elif isinstance(part, (kinds.TextPart, kinds.ThinkingPart)):
            key = "content" if isinstance(part, kinds.TextPart) else "reasoning_content"
            made[key] = (made.get(key) or "") + part.content
    return [made]


def read_part(raw: Any, part: Any) -> Any:
    """Return an edited message as the part it came from, or as a user prompt if ullage wrote it."""
    content = raw["content"]
    if not isinstance(content, str):
        pieces = [(write_item(i), i) for i in part.content if not isinstance(i, kinds.CachePoint)]
        found = match_pieces(content, pieces, type)
        content = [item if same else piece["text"] for piece, item, same in found]
    return kinds.UserPromptPart(content) if part is None else replace(part, content=content)


def match_pieces(
    raws: Sequence[Any], pieces: Sequence[tuple[Any, P]], name: Callable[[Any], Any]
) -> Iterator[tuple[Any, P | None, bool]]:
    """Yield dialect messages, the piece that each came from, and whether it is unchanged.

    `pieces` are the framework's pieces, each with the message written from it. `name` returns the
    key that identifies a message after an edit. Both lists have the same order; some pieces may be
    gone.
    """
    left = list(pieces)
    for raw in raws:
        places = [place for place, (was, _) in enumerate(left) if was == raw]
        same = bool(places)
        places = places or [i for i, (was, _) in enumerate(left) if name(was) == name(raw)]
        yield raw, left[places[0]][1] if places else None, same
        left = left[places[0] + 1 :] if places else left


def read_messages(raws: Sequence[Any], source: kinds.ModelMessage | None) -> kinds.ModelMessage:
    """Return edited messages as one of Pydantic AI's; parts without edits stay as they were."""
    first = raws[0]
    if first["role"] == "assistant":
        return _read_answer(first, source or kinds.ModelResponse([]))
    pieces = [(write_part(p), p) for p in source.parts if p.part_kind in SENT] if source else []
    found = match_pieces(raws, pieces, lambda raw: (raw["role"], raw.get("tool_call_id")))
    parts = [part if same else read_part(raw, part) for raw, part, same in found]
    return kinds.ModelRequest(parts) if source is None else replace(source, parts=parts)


def _read_answer(raw: Any, source: kinds.ModelResponse) -> kinds.ModelResponse:
    calls = {call["id"]: call["function"]["arguments"] for call in raw.get("tool_calls") or ()}
    text, thinks = raw["content"], "reasoning_content" in raw
    if text != write_message(source)[0]["content"]:  # one text replaces all the old texts
        others = [part for part in source.parts if not isinstance(part, kinds.TextPart)]
        source = replace(source, parts=[*([kinds.TextPart(text)] if text else []), *others])
    kept = [
        replace(part, args=calls[part.tool_call_id])
        if isinstance(part, kinds.ToolCallPart)
        else part
        for part in source.parts
        if (not isinstance(part, kinds.ToolCallPart) or part.tool_call_id in calls)
        and (thinks or not isinstance(part, kinds.ThinkingPart))
    ]
    return replace(source, parts=kept)


FORM = MessageForm(write_message, read_messages)


def make_profile(model: str, **options: Any) -> dict[str, int]:
    """Return a `profile=` for a model: its window, or an empty profile if unknown."""
    window = Adapter(FORM, model, **options).open().window
    return {} if window is None else {"context_window": window}


def make_counter(model: str | None = None) -> Callable[[Sequence[kinds.ModelMessage]], int]:
    """Return a function that counts messages, for history processors."""
    return Adapter(FORM, model).count


class GuardedModel(WrapperModel):
    """A model whose requests are guarded; `PydanticGuard` makes one for each request."""

    def __init__(self, wrapped: Any, guard: PydanticGuard) -> None:
        super().__init__(wrapped)
        self.guard = guard

    async def request(
        self, messages: Any, model_settings: Any, model_request_parameters: Any
    ) -> Any:
        """Send what fits, retry once after an overflow, and keep the compactions in the answer."""
        session, beside = self.guard.begin(self.wrapped, messages, model_request_parameters)
        beside["reserve"] = find_output(model_settings, self.wrapped.settings)
        answer, fitted = await session.acall(
            lambda fitted: self.wrapped.request(
                fitted.messages, model_settings, model_request_parameters
            ),
            messages,
            beside,
            report=_report,
        )
        _keep(session, answer, fitted)
        return answer

    @asynccontextmanager
    async def request_stream(
        self,
        messages: Any,
        model_settings: Any,
        model_request_parameters: Any,
        run_context: Any = None,
    ) -> AsyncGenerator[Any]:
        """Do as `request`, and learn from the usage at the end of the stream."""
        session, beside = self.guard.begin(self.wrapped, messages, model_request_parameters)
        beside["reserve"] = find_output(model_settings, self.wrapped.settings)
        async with AsyncExitStack() as stack:
            answer, fitted = await session.acall(
                lambda fitted: stack.enter_async_context(
                    self.wrapped.request_stream(
                        fitted.messages, model_settings, model_request_parameters, run_context
                    )
                ),
                messages,
                beside,
                report=lambda answer: None,
            )
            _keep(session, answer, fitted)
            yield answer
            said = _report(answer.get())
            if said is not None:
                await fitted.view.aobserve(said)


class PydanticGuard(AbstractCapability[Any]):
    """Keep each model request of an agent inside its window; `options` are those of `ullage.Guard`.

    With `recall` the model gets tools that read and search the text that was left out.
    """

    def __init__(self, model: str | None = None, *, recall: bool = True, **options: Any) -> None:
        self.adapter = Adapter(FORM, model, **options)
        self._tools = [self._make_tool(spec) for spec in TOOLS] if recall else []

    def get_toolset(self) -> Any:
        """Return the tools that read and search the text that was left out."""
        return FunctionToolset(self._tools) if self._tools else None

    def get_wrapper_model(self, model: Any) -> GuardedModel:
        """Return the guarded model of a request."""
        return GuardedModel(model, self)

    def open(self, model: Any, conversation: str | None) -> GuardedSession[kinds.ModelMessage]:
        """Return the session of a conversation."""
        client = getattr(model, "client", None)
        fresh = getattr(client, "_api_key_provider", None)  # a key created anew identifies nobody
        key = None if fresh is not None else getattr(client, "api_key", None)
        url = model.base_url
        return self.adapter.open(conversation, model=model.model_name, base_url=url, api_key=key)

    def begin(
        self, model: Any, messages: Sequence[kinds.ModelMessage], parameters: Any
    ) -> tuple[GuardedSession[kinds.ModelMessage], Beside]:
        """Return the session of a request, and the request's parts other than its messages."""
        newest = messages[::-1]
        session = self.open(
            model, next((m.conversation_id for m in newest if m.conversation_id), None)
        )
        session.load(next((m.metadata[KEY] for m in newest if KEY in (m.metadata or ())), None))
        operator = [part.content for part in parameters.instruction_parts or ()]
        return session, {
            "tools": self.adapter.define(list(parameters.declared_tool_defs.values()), _define),
            "system": "\n\n".join(operator) or None,
        }

    def _make_tool(self, spec: Spec) -> Tool[Any]:
        def answer(ctx: RunContext[Any], **arguments: Any) -> str:
            return self.open(ctx.model, ctx.conversation_id).answer(spec.name, arguments)

        schema = dict(spec.parameters)
        return Tool.from_schema(answer, spec.name, spec.description, schema, takes_ctx=True)


def _define(tool: Any) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description or ""}
    return {
        "type": "function",
        "function": {**described, "parameters": tool.parameters_json_schema},
    }


def _report(answer: kinds.ModelResponse) -> Any:
    used = answer.usage
    if not used.input_tokens:
        return None
    return report_chat(used.input_tokens, used.output_tokens, used.cache_read_tokens)


def _keep(
    session: GuardedSession[kinds.ModelMessage], answer: Any, fitted: Fitted[kinds.ModelMessage]
) -> None:
    state = session.dump() if fitted.is_new else None
    if state is not None:
        answer.metadata = {**(answer.metadata or {}), KEY: state}
