"""Messages of LangChain and Pydantic AI, given to ullage as they are: what it says, as JSON lines.

`python foreign_messages.py FOLDER...`: the folders are looked for packages after all others.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from pydantic_ai.messages import (
    ModelRequest,
    UserPromptPart,
)


def main(folders: list[str]) -> None:
    """Print a line for each kind of message."""
    sys.path += folders
    import ullage

    asked = AIMessage("", tool_calls=[{"name": "look", "args": {"at": 1}, "id": "c1"}])
    talk = [SystemMessage("Be brief."), HumanMessage("Look."), asked]
    talk += [ToolMessage("Seven casks.", tool_call_id="c1"), AIMessage("Seven.")]
    told: list[list[Any]] = []
    for message in (*talk, ModelRequest(parts=[UserPromptPart("Look.")])):
        try:
            ullage.count([{"role": "user", "content": "first"}, message])
        except ullage.MalformedHistoryError as error:
            told.append([type(message).__name__, error.index, str(error)])
    ullage.validate(convert_to_openai_messages(talk))
    told.append(["converted", 0, ""])
    sys.stdout.writelines(f"{json.dumps(line)}\n" for line in told)


if __name__ == "__main__":
    main(sys.argv[1:])
