"""LiteLLM: `token_counter` and `trim_messages`."""

from __future__ import annotations

import logging
from collections.abc import Callable

import litellm
from litellm.utils import trim_messages

from bench.peers import History, Message

MODEL = "gpt-4o"


class LiteLLM:
    def __init__(self) -> None:
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        litellm.suppress_debug_info = True

    def read(self, messages: list[Message]) -> History:
        return list(messages)

    def plain(self, history: History) -> list[Message]:
        return list(history)

    def count(self, history: History) -> int:
        return int(litellm.token_counter(model=MODEL, messages=history))

    def trim(self, history: History, budget: int) -> History:
        return list(trim_messages(history, model=MODEL, max_tokens=budget))

    def manager(self, window: int, output: int) -> Callable[[History], History]:
        return lambda history: self.trim(list(history), window - output)
