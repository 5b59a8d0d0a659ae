"""LangChain: `trim_messages` with the arguments that its documentation shows, and two counters."""

from __future__ import annotations

from collections.abc import Callable

from langchain_core.messages import convert_to_messages, convert_to_openai_messages, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langchain_openai import ChatOpenAI

from bench.peers import History, Message


class Approximate:
    """Counts characters divided by four."""

    def __init__(self) -> None:
        self.counter: Callable[[History], int] = count_tokens_approximately

    def read(self, messages: list[Message]) -> History:
        return list(convert_to_messages(messages))

    def plain(self, history: History) -> list[Message]:
        return list(convert_to_openai_messages(history))

    def count(self, history: History) -> int:
        return self.counter(history)

    def trim(self, history: History, budget: int) -> History:
        return list(
            trim_messages(
                history,
                max_tokens=budget,
                token_counter=self.counter,
                strategy="last",
                start_on="human",
                end_on=("human", "tool"),
                include_system=True,
            )
        )

    def manager(self, window: int, output: int) -> Callable[[History], History]:
        return lambda history: self.trim(history, window - output)


class Exact(Approximate):
    """Counts with the chat model's own counter, which is tiktoken's."""

    def __init__(self) -> None:
        self.counter = ChatOpenAI(model="gpt-4o", api_key="none").get_num_tokens_from_messages
