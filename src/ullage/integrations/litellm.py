"""LiteLLM: a callback that guards each `acompletion` of the library, its Router and its proxy.

Only LiteLLM's async calls run hooks that may change a request; `completion` runs none of them.
LiteLLM keeps no history and no state. Messages have the form of Chat Completions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger

from ullage.core.dialects import registry as dialects
from ullage.core.dialects.thinking import lower_thinking
from ullage.integrations.adapter import (
    TOOLS,
    Adapter,
    Fitted,
    GuardedSession,
    MessageForm,
    SentRequest,
    Waiting,
)
from ullage.integrations.reports import find_output, report_chat

__all__ = ["LiteLLMGuard", "find_model_info", "make_counter"]

FORM: MessageForm[Any] = MessageForm(lambda message: [message], lambda raws, source: raws[0])


def find_model_info(model: str, **options: Any) -> dict[str, int]:
    """Return a `model_info` of a deployment, or of `litellm.register_model`: the model's window.

    The result is empty if the window is unknown.
    """
    window = Adapter(FORM, model, **options).open().window
    return {} if window is None else {"max_input_tokens": window, "max_tokens": window}


def make_counter(model: str | None = None) -> Callable[[Sequence[Any]], int]:
    """Return a function that counts messages."""
    return Adapter(FORM, model).count


class LiteLLMGuard(CustomLogger):
    """Keep each async call inside its window; `options` are those of `ullage.Guard`.

    Add it to `litellm.callbacks`. `tools` are definitions to offer to a model; `answer` returns the
    result of a call of one of them.
    """

    def __init__(self, model: str | None = None, **options: Any) -> None:
        super().__init__()
        self.adapter = Adapter(FORM, model, **options)
        form = dialects.find(dialects.DEFAULT).make_form()
        self.tools = [form.tool(spec) for spec in TOOLS]
        self._sent: Waiting[Any] = Waiting()

    def open(self, kwargs: Mapping[str, Any]) -> GuardedSession[Any]:
        """Return the session of a call, by `litellm_session_id` or the metadata's `session_id`."""
        metadata = kwargs.get("metadata") or kwargs.get("litellm_metadata") or {}
        name = kwargs.get("litellm_session_id") or metadata.get("session_id")
        base = kwargs.get("api_base") or kwargs.get("base_url")
        model, _, key, found = litellm.get_llm_provider(kwargs["model"], api_base=base)
        given = {"base_url": base or found, "api_key": kwargs.get("api_key") or key}
        return self.adapter.open(name, model=model, **given)

    def answer(self, name: str, arguments: Any, **kwargs: Any) -> str:
        """Return the result of a call of one of `tools`; keywords are those of the model call."""
        return self.open(kwargs).answer(name, arguments)

    async def async_pre_call_deployment_hook(self, kwargs: Any, call_type: Any) -> Any:
        """Return the request with what fits, and let LiteLLM send it again after an overflow."""
        if getattr(call_type, "value", None) != "acompletion" or not kwargs.get("messages"):
            return None
        session, given = self.open(kwargs), kwargs["messages"]
        beside: Any = {"tools": kwargs.get("tools"), "max_tokens": find_output(kwargs)}
        fitted = await session.afit(given, beside)
        self._sent.keep(kwargs["litellm_call_id"], SentRequest(session, fitted))
        again = {
            kwargs["model"]: kwargs["model"],
            **(kwargs.get("context_window_fallback_dict") or {}),
        }
        made = {**kwargs, "messages": fitted.messages, "context_window_fallback_dict": again}
        return _lower_answer(made, fitted)

    async def async_post_call_success_deployment_hook(
        self, request_data: Any, response: Any, call_type: Any
    ) -> None:
        """Learn from the usage of an answer. LiteLLM shows the usage of a stream to no hook."""
        used: Any = getattr(response, "usage", None)
        sent = self._sent.pop(request_data.get("litellm_call_id"), None) if used else None
        if sent is not None:
            details = getattr(used, "prompt_tokens_details", None)
            cached = getattr(details, "cached_tokens", None) or 0
            said = report_chat(used.prompt_tokens, used.completion_tokens, cached)
            await sent.fitted.view.aobserve(said)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Any, exception: Exception, call_type: Any, fallback_depth: Any = None
    ) -> None:
        """Shrink the list that LiteLLM sends again, and learn the limit from the error."""
        sent = self._sent.pop(request_data.get("litellm_call_id"), None)
        if sent is None:
            return

        async def replace(fitted: Fitted[Any]) -> None:
            sent.fitted.messages[:] = fitted.messages
            _lower_answer(request_data, fitted)

        await sent.session.aretry(replace, sent.fitted, exception, report=lambda answer: None)


def _lower_answer(kwargs: dict[str, Any], fitted: Fitted[Any]) -> dict[str, Any]:
    """Return the keywords of a call with the guard's limit for the answer."""
    for name in ("max_completion_tokens", "max_tokens"):
        asked, given = kwargs.get(name), fitted.view.prepared.max_tokens
        if asked is not None:
            kwargs[name] = given
        if type(asked) is int and given is not None:
            kwargs |= lower_thinking(kwargs, asked, given)
    return kwargs
