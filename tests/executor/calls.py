"""Calls as a model writes them, run to their outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from ullage.core.messages.transcript import Call
from ullage.core.session.tools import ToolOutcome
from ullage.tools import Executor


def call(tool: str, /, **arguments: Any) -> Call:
    """Return a call of a tool."""
    return Call("call_1", tool, json.dumps(arguments))


def ran(executor: Executor, tool: str, /, **arguments: Any) -> ToolOutcome:
    """Run one call."""
    return asyncio.run(executor.run(call(tool, **arguments), key="k1"))


def dry(executor: Executor, tool: str, /, **arguments: Any) -> ToolOutcome:
    """Run one call dry."""
    return asyncio.run(executor.run(call(tool, **arguments), key="k1", dry_run=True))


def fields(schema: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Return the schema of an object."""
    return {
        "type": "object",
        "properties": dict(schema),
        "required": list(required),
        "additionalProperties": False,
    }
