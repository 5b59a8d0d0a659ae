"""A conversation of LangChain's chat models, as its makers document it.

`python langchain_talk.py openai|anthropic whole|streamed TURNS`; where to is for the environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import (
    HumanMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool  # type: ignore[untyped-decorator]  # the same
def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text("utf-8")


def answer(model: Any, history: list[Any], *, streamed: bool) -> Any:
    """Return the model's next message."""
    if not streamed:
        return model.invoke(history)
    pieces = list(model.stream(history))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    return whole


def main(dialect: str, way: str, turns: str) -> None:
    """Hold the conversation; print what the model said in each turn."""
    chosen = ChatOpenAI if dialect == "openai" else ChatAnthropic
    model = chosen(model="tiny").bind_tools([read])
    history: list[Any] = []
    for turn in range(int(turns)):
        history.append(HumanMessage(f"What is in the cellar on day {turn}?"))
        said = answer(model, history, streamed=way == "streamed")
        history.append(said)
        while said.tool_calls:
            for call in said.tool_calls:
                result = read.invoke(call["args"])
                history.append(ToolMessage(result, tool_call_id=call["id"]))
            said = answer(model, history, streamed=way == "streamed")
            history.append(said)
        print(said.text)  # noqa: T201 - what it is for


if __name__ == "__main__":
    main(*sys.argv[1:])
