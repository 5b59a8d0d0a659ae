"""Tools without files: `plan` shows what is intended, `ullage_recall` reads left-out text.

They know neither who shows a plan nor where texts are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ullage.core.errors import UllageError
from ullage.core.session.permissions import Access
from ullage.core.session.recall import SPEC, clean_reference, cut_page
from ullage.core.session.tools import Spec, ToolOutcome
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


class PlanTool:
    """The tool `plan`."""

    spec = PLAN

    def access(self, arguments: Arguments) -> Access:
        """Return that nothing is touched."""
        del arguments
        return Access()

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Return the steps, for whoever shows them."""
        del key, dry_run
        steps = tuple({"status": "to do", **step} for step in arguments["steps"])
        return ToolOutcome(f"the plan of {len(steps)} steps is shown", plan=steps)


class RecallTool:
    """The tool that reads left-out text back; `read` returns it by its reference.

    `read` raises UllageError for an unknown reference.
    """

    spec = SPEC

    def __init__(self, read: Callable[[str], str], characters: int = RESULT_CHARACTERS) -> None:
        self._read = read
        self._page = characters * 9 // 10

    def access(self, arguments: Arguments) -> Access:
        """Return that nothing is touched."""
        del arguments
        return Access()

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Return a page of a text that was left out."""
        del key, dry_run
        reference = clean_reference(arguments["reference"])
        most = min(arguments.get("limit") or self._page, self._page)
        try:
            text = await beside(lambda: self._read(reference))
            return ToolOutcome(cut_page(text, arguments.get("offset", 0), most).write())
        except UllageError as error:
            raise Fault(str(error)) from error
