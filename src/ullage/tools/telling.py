"""Tools without files: `plan` shows the next steps; two others read and search left-out text.

They know neither the display of a plan nor the storage of texts.
"""

from __future__ import annotations

from typing import Final, Protocol

from ullage.core.errors import UllageError
from ullage.core.search.ranking import Hit
from ullage.core.session import recall, searching
from ullage.core.session.permissions import Access
from ullage.core.session.tools import Spec, ToolOutcome
from ullage.tools.bounds import RESULT_CHARACTERS
from ullage.tools.tool import Arguments, Fault
from ullage.tools.work import beside

STEPS: Final = 50
"""Most steps of a plan."""

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
        """Return that it touches nothing."""
        del arguments
        return Access()

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Return the steps, for display."""
        del key, dry_run
        steps = tuple({"status": "to do", **step} for step in arguments["steps"])
        return ToolOutcome(f"the plan of {len(steps)} steps is shown", plan=steps)


class Past(Protocol):
    """The text left out of a conversation: read by reference, found by words.

    Both methods raise UllageError for invalid input.
    """

    def read(self, reference: str) -> str:
        """Return the text of a reference."""

    def search(self, query: str, hits: int) -> list[Hit]:
        """Return the passages that fit a query best."""


class RecallTool:
    """The tool that reads left-out text back."""

    spec = recall.SPEC

    def __init__(self, past: Past, characters: int = RESULT_CHARACTERS) -> None:
        self._past = past
        self._page = characters * 9 // 10

    def access(self, arguments: Arguments) -> Access:
        """Return that it touches nothing."""
        del arguments
        return Access()

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Return a page of a left-out text."""
        del key, dry_run
        reference = recall.clean_reference(arguments["reference"])
        most = min(arguments.get("limit") or self._page, self._page)
        try:
            text = await beside(lambda: self._past.read(reference))
            return ToolOutcome(recall.cut_page(text, arguments.get("offset", 0), most).write())
        except UllageError as error:
            raise Fault(str(error)) from error


class SearchBackTool:
    """The tool that finds left-out text by words."""

    spec = searching.SPEC

    def __init__(self, past: Past) -> None:
        self._past = past

    def access(self, arguments: Arguments) -> Access:
        """Return that it touches nothing."""
        del arguments
        return Access()

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Return the passages that fit best, each with its reference."""
        del key, dry_run
        try:
            query = searching.read_query(arguments)
            found = await beside(lambda: self._past.search(query, searching.HITS))
        except UllageError as error:
            raise Fault(str(error)) from error
        return ToolOutcome(searching.write_hits(found))
