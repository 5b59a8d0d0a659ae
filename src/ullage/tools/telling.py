"""The tools without files: `plan` shows people what is intended, `recall` reads left-out text.

They know neither who shows a plan nor where texts are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ullage.core.errors import UllageError
from ullage.core.session.permissions import Access
from ullage.core.session.tools import Outcome, Spec
from ullage.tools.bounds import RESULT_CHARACTERS
from ullage.tools.tool import Arguments, Fault
from ullage.tools.work import beside

STEPS: Final = 50
"""Steps of a plan."""

PLAN: Final = Spec(
    name="plan",
    description="Show the person a plan, or how far it is. Changes nothing.",
    parameters={
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "maxItems": STEPS,
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string", "minLength": 1},
                        "status": {"type": "string", "enum": ["to do", "doing", "done"]},
                    },
                    "required": ["text"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["steps"],
        "additionalProperties": False,
    },
    reads_only=True,
    idempotent=True,
    again="state",
)

RECALL: Final = Spec(
    name="recall",
    description=(
        "Read back text that was left out of this conversation to save room. A placeholder names "
        "its reference, such as u:0123456789abcdef. A long text comes in pages: go on with the "
        "offset that the answer names."
    ),
    parameters={
        "type": "object",
        "properties": {
            "reference": {"type": "string", "minLength": 1},
            "offset": {"type": "integer", "minimum": 0, "description": "characters to skip"},
        },
        "required": ["reference"],
        "additionalProperties": False,
    },
    reads_only=True,
    idempotent=True,
)


class Plan:
    """The tool `plan`."""

    spec = PLAN

    def access(self, arguments: Arguments) -> Access:
        """Return that nothing is touched."""
        del arguments
        return Access()

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> Outcome:
        """Return the steps, for whoever shows them."""
        del key, dry_run
        steps = tuple({"status": "to do", **step} for step in arguments["steps"])
        return Outcome(f"the plan of {len(steps)} steps is shown", plan=steps)


class Recall:
    """The tool `recall`; `read` returns the text of a reference, or raises UllageError."""

    spec = RECALL

    def __init__(self, read: Callable[[str], str], characters: int = RESULT_CHARACTERS) -> None:
        self._read = read
        self._page = characters * 9 // 10

    def access(self, arguments: Arguments) -> Access:
        """Return that nothing is touched."""
        del arguments
        return Access()

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> Outcome:
        """Return a page of a text that was left out."""
        del key, dry_run
        # Models copy a reference with the marks around it.
        reference = arguments["reference"].strip(" \t\r\n\"'`[]()<>.,;")
        try:
            text = await beside(lambda: self._read(reference))
        except UllageError as error:
            raise Fault(str(error)) from error
        start = arguments.get("offset", 0)
        if start and start >= len(text):
            raise Fault(f"offset {start:,} is behind the {len(text):,} characters")
        end = min(start + self._page, len(text))
        if (start, end) == (0, len(text)):
            return Outcome(text)
        more = "the end" if end == len(text) else f"go on with offset={end}"
        page = text[start:end]
        return Outcome(f"{page}\n[characters {start} to {end} of {len(text)}; {more}]")
