"""Runs the calls of a model: offers the tools, describes a call, and returns its outcome.

It knows no log, no provider and no user; the driver of a turn knows them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ullage.core.errors import ConfigurationError, UllageError
from ullage.core.messages.transcript import Call
from ullage.core.session.permissions import ALLOWED, CallSubject, Decision, Posture, decide
from ullage.core.session.reach import Reach
from ullage.core.session.tools import Intent, Pending, Preview, Spec, ToolOutcome
from ullage.tools import schema
from ullage.tools.bounds import RESULT_CHARACTERS, limit_text
from ullage.tools.reading import List, ReadTool
from ullage.tools.sandbox import Sandbox
from ullage.tools.search import SECONDS, SearchTool
from ullage.tools.shell import Shell
from ullage.tools.telling import Past, PlanTool, RecallTool, SearchBackTool
from ullage.tools.tool import Arguments, Fault, Foreseen, Tool, Varying
from ullage.tools.work import beside
from ullage.tools.workspace import Workspace
from ullage.tools.writing import Edit, Write


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Limits of every result, in characters, and of a search, in seconds."""

    characters: int = RESULT_CHARACTERS
    search_s: int = SECONDS

    def __post_init__(self) -> None:
        for name, least in (("characters", 1_000), ("search_s", 1)):
            if getattr(self, name) < least:
                raise ConfigurationError(
                    f"{name} of the tools is {getattr(self, name)}, the least is {least}"
                )


def make_tools(
    workspace: Workspace,
    *,
    shell: Sandbox | None = None,
    past: Past | None = None,
    limits: ToolLimits | None = None,
) -> tuple[Tool, ...]:
    """Return the tools of this package; those for left-out text only if there is a `past`."""
    limits = limits or ToolLimits()
    tools: tuple[Tool, ...] = (
        ReadTool(workspace, limits.characters),
        List(workspace),
        SearchTool(workspace, limits.search_s),
        Write(workspace),
        Edit(workspace),
        Shell(workspace, shell, limits.characters),
        PlanTool(),
    )
    if past is None:
        return tools
    return (*tools, RecallTool(past, limits.characters), SearchBackTool(past))


class Executor:
    """The tools of one workspace.

    `state` is a directory that no tool may reach. `shell` is the sandbox for commands; if it is
    None, the shell is off. `tools` replace the built-in ones. `past` holds the left-out text.
    Raises ConfigurationError for an invalid workspace, for two tools with one name, and if the
    system cannot open paths relative to folders (Windows).
    """

    def __init__(
        self,
        workspace: Path,
        *,
        state: Path | None = None,
        tools: Sequence[Tool] | None = None,
        shell: Sandbox | None = None,
        past: Past | None = None,
        limits: ToolLimits | None = None,
    ) -> None:
        if os.open not in os.supports_dir_fd:
            raise ConfigurationError("the tools need a system that opens files relative to folders")
        self.workspace = Workspace(workspace, state)
        self._limits = limits or ToolLimits()
        if tools is None:
            tools = make_tools(self.workspace, shell=shell, past=past, limits=self._limits)
        self._tools: Mapping[str, Tool] = MappingProxyType({tool.spec.name: tool for tool in tools})
        if len(self._tools) != len(tools):
            raise ConfigurationError("two tools have the same name")

    def extend(self, *tools: Tool) -> Executor:
        """Return a copy with more tools; raises ConfigurationError for two with one name."""
        held = {**self._tools, **{tool.spec.name: tool for tool in tools}}
        if len(held) != len(self._tools) + len(tools):
            named = ", ".join(tool.spec.name for tool in tools)
            raise ConfigurationError(f"two tools have the same name: {named} is there already")
        made = copy(self)
        vars(made)["_tools"] = MappingProxyType(held)
        return made

    def specs(self, posture: Posture) -> tuple[Spec, ...]:
        """Return the tools offered to a model: only readers if the posture is read-only.

        A shell that is off is not offered.
        """
        return tuple(
            tool.spec
            for tool in self._tools.values()
            if (tool.spec.reads_only or not posture.reads_only)
            and not (isinstance(tool, Shell) and tool.off)
        )

    def intent(self, call: Call) -> Intent:
        """Return the record of a call before it runs."""
        tool = self._tools.get(call.name)
        if tool is None:
            return Intent()
        with suppress(Fault):
            if isinstance(tool, Varying):
                return tool.intent(schema.read(call.arguments, tool.spec.parameters))
        return Intent(tool.spec.reads_only, tool.spec.idempotent)

    def decide(self, call: Call, posture: Posture) -> Decision:
        """Return whether a call may run; a malformed one may, because `run` reports its error.

        The check follows the path as it is now. `run` protects the state directory even if the path
        changes in between.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return ALLOWED
        try:
            access = tool.access(schema.read(call.arguments, tool.spec.parameters))
        except Fault:
            return ALLOWED
        return decide(access, posture)

    def find_reach(self, call: Call) -> frozenset[Reach]:
        """Return what a call touches, as its tool declares; a read-only command sends nothing."""
        tool = self._tools.get(call.name)
        if tool is None:
            return frozenset()
        with suppress(Fault):
            if tool.access(schema.read(call.arguments, tool.spec.parameters)).safe:
                return tool.spec.reach - {"outside"}
        return tool.spec.reach

    async def preview(self, call: Call) -> Pending | ToolOutcome:
        """Return what a call would do, for the person to approve, or the outcome if it must fail.

        It changes nothing.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return self._report_unknown_tool(call.name)
        try:
            arguments = schema.read(call.arguments, tool.spec.parameters)
            if isinstance(tool, Foreseen):
                shown = await tool.preview(arguments)
            else:
                shown = Preview("arguments", json.dumps(arguments, indent=2, ensure_ascii=False))
            return Pending.over(call, shown, self.subject(call))
        except (Fault, UllageError, OSError) as error:
            return self._limit_outcome(_fault(error), dry_run=False)

    def subject(self, call: Call) -> CallSubject:
        """Return the subject of a call, as far as its tool can tell."""
        with suppress(KeyError, Fault):
            tool = self._tools[call.name]
            arguments = schema.read(call.arguments, tool.spec.parameters)
            access = tool.access(arguments)
            if access.command and access.text:
                return CallSubject(call.name, "command", access.text)
            if len(access.writes) == 1:
                return CallSubject(call.name, "path", access.writes[0])
            return CallSubject(call.name, "arguments", json.dumps(arguments, sort_keys=True))
        return CallSubject(call.name, "arguments", call.arguments)

    async def run(self, call: Call, *, key: str, dry_run: bool = False) -> ToolOutcome:
        """Run a call and return the result for the model; nothing in the call makes it raise.

        With `dry_run` nothing is written or executed, and the outcome is marked. If it is
        cancelled, it first waits until the started work is over.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            outcome = self._report_unknown_tool(call.name)
        else:
            try:
                arguments = schema.read(call.arguments, tool.spec.parameters)
                outcome = await self._run_journaled(tool, arguments, key, dry_run=dry_run)
            except (Fault, UllageError, OSError) as error:
                outcome = _fault(error)
            reach = outcome.reach | tool.spec.reach - {"outside"}
            outcome = replace(outcome, reach=frozenset() if dry_run else reach)
        return self._limit_outcome(outcome, dry_run=dry_run)

    def _report_unknown_tool(self, name: str) -> ToolOutcome:
        return _make_error(f"there is no tool {name!r:.80}; there are {', '.join(self._tools)}")

    async def _run_journaled(
        self, tool: Tool, arguments: Arguments, key: str, *, dry_run: bool
    ) -> ToolOutcome:
        """Run a tool; if there is a journal, note the file changes that it may make first.

        The tools that write files note each file. For any other tool that may change files, the
        whole workspace is noted before and after.
        """
        journal = self.workspace.journal
        noted = tool.spec.reads_only or isinstance(tool, Write | Edit)
        if journal is None or dry_run or noted or tool.access(arguments).safe:
            return await tool.run(arguments, key=key, dry_run=dry_run)
        before = await beside(journal.begin_command)
        try:
            return await tool.run(arguments, key=key, dry_run=dry_run)
        finally:
            await beside(lambda: journal.end_command(before))

    def _limit_outcome(self, outcome: ToolOutcome, *, dry_run: bool) -> ToolOutcome:
        text, cut = limit_text(outcome.text, self._limits.characters)
        marks: dict[str, Any] = {**outcome.marks, **cut}
        if dry_run:
            marks["dry_run"] = True
        return replace(outcome, text=text, marks=marks)


def _fault(error: Exception) -> ToolOutcome:
    return _make_error(_describe_error(error) if isinstance(error, OSError) else str(error))


def _make_error(text: str) -> ToolOutcome:
    return ToolOutcome(f"error: {text}", is_error=True)


def _describe_error(error: OSError) -> str:
    name = error.filename if isinstance(error.filename, str) else ""
    return f"{error.strerror or error}{f': {name}' if name else ''}"
