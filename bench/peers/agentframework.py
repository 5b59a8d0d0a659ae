"""Microsoft's Agent Framework: counts that it writes into its messages, with tiktoken's counter.

It counts the JSON of a message, and a message once: the incremental counter among the peers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import tiktoken
from agent_framework import Content, annotate_message_groups, included_token_count
from agent_framework import Message as Own

from bench.peers import History, Message


class _Tokenizer:
    def __init__(self) -> None:
        self._encoding = tiktoken.get_encoding("o200k_base")

    def count_tokens(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))


class AgentFramework:
    def __init__(self) -> None:
        self._tokenizer = _Tokenizer()

    def read(self, messages: list[Message]) -> History:
        return list(map(_read, messages))

    def plain(self, history: History) -> NoReturn:
        raise NotImplementedError("only its counting is measured")

    def count(self, history: History) -> int:
        annotate_message_groups(history, tokenizer=self._tokenizer)
        return int(included_token_count(history))

    def trim(self, history: History, budget: int) -> NoReturn:
        raise NotImplementedError("only its counting is measured")

    def manager(self, window: int, output: int) -> Callable[[History], History]:
        raise NotImplementedError("only its counting is measured")


def _read(message: Message) -> Own:
    text = message.get("content")
    if message["role"] == "tool":
        result = Content.from_function_result(call_id=message["tool_call_id"], result=text)
        return Own(role="tool", contents=[result])
    contents = [Content.from_text(text)] if text else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        contents.append(
            Content.from_function_call(
                call_id=call["id"], name=function["name"], arguments=function["arguments"]
            )
        )
    return Own(role=message["role"], contents=contents)
