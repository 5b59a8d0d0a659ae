"""LlamaIndex: the `TokenCounter` behind its token counting, over its own chat messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import tiktoken
from llama_index.core import set_global_tokenizer
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.utilities.token_counting import TokenCounter

from bench.peers import History, Message


class LlamaIndex:
    """Counts with the tokenizer that its documentation sets for OpenAI's models."""

    def __init__(self) -> None:
        encode = tiktoken.encoding_for_model("gpt-4o").encode
        set_global_tokenizer(encode)
        self._counter = TokenCounter(encode)

    def read(self, messages: list[Message]) -> History:
        return list(map(_read, messages))

    def plain(self, history: History) -> NoReturn:
        raise NotImplementedError("only its counting is measured")

    def count(self, history: History) -> int:
        return int(self._counter.estimate_tokens_in_messages(history))

    def trim(self, history: History, budget: int) -> NoReturn:
        raise NotImplementedError("only its counting is measured")

    def manager(self, window: int, output: int) -> Callable[[History], History]:
        raise NotImplementedError("only its counting is measured")


def _read(message: Message) -> ChatMessage:
    text = message.get("content")
    blocks: list[TextBlock | ToolCallBlock] = [TextBlock(text=text)] if text else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            ToolCallBlock(
                tool_call_id=call["id"],
                tool_name=function["name"],
                tool_kwargs=function["arguments"],
            )
        )
    answers = message.get("tool_call_id")
    extra = {"tool_call_id": answers} if answers else {}
    return ChatMessage(role=message["role"], blocks=blocks, additional_kwargs=extra)
