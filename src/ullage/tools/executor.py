"""Runs the calls of a model: its tools, what may be said of a call, and what it came to.

It knows no log, no provider and nobody to ask; whoever drives a turn does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ullage.core.errors import ConfigurationError, UllageError
from ullage.core.messages.transcript import Call
from ullage.core.session.permissions import ALLOWED, Decision, Posture, Subject, decide
from ullage.core.session.tools import Intent, Outcome, Pending, Preview, Spec
from ullage.tools import schema
from ullage.tools.bounds import RESULT_CHARACTERS, bounded
from ullage.tools.reading import List, Read
from ullage.tools.sandbox import Sandbox
from ullage.tools.search import SECONDS, Search
from ullage.tools.shell import Shell
from ullage.tools.telling import Plan, Recall
from ullage.tools.tool import Arguments, Fault, Foreseen, Tool
from ullage.tools.work import beside
from ullage.tools.workspace import Workspace
from ullage.tools.writing import Edit, Write


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of every result, in characters, and of a search, in seconds."""

    characters: int = RESULT_CHARACTERS
    search_s: int = SECONDS

    def __post_init__(self) -> None:
        for name, least in (("characters", 1_000), ("search_s", 1)):
            if getattr(self, name) < least:
                raise ConfigurationError(
                    f"{name} of the tools is {getattr(self, name)}, the least is {least}"
                )


def built_in(
    workspace: Workspace,
    *,
    shell: Sandbox | None = None,
    recall: Callable[[str], str] | None = None,
    limits: Limits | None = None,
) -> tuple[Tool, ...]:
    """Return the tools that come with the package; `recall` only where texts can be read back."""
    limits = limits or Limits()
    tools: tuple[Tool, ...] = (
        Read(workspace, limits.characters),
        List(workspace),
        Search(workspace, limits.search_s),
        Write(workspace),
        Edit(workspace),
        Shell(workspace, shell, limits.characters),
        Plan(),
    )
    return tools if recall is None else (*tools, Recall(recall, limits.characters))


class Executor:
    """The tools of one workspace.

    `state` is the directory that no tool may reach; `shell` grants a sandbox, None turns the shell
    off. `tools` take the place of the built-in ones. `recall` returns the text of a reference and
    raises UllageError for one that is not there. Raises ConfigurationError for a workspace that is
    none, for two tools of one name, and where paths cannot be opened relative to folders (Windows).
    """

    def __init__(
        self,
        workspace: Path,
        *,
        state: Path | None = None,
        tools: Sequence[Tool] | None = None,
        shell: Sandbox | None = None,
        recall: Callable[[str], str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if os.open not in os.supports_dir_fd:
            raise ConfigurationError("the tools need a system that opens files relative to folders")
        self.workspace = Workspace(workspace, state)
        self._limits = limits or Limits()
        if tools is None:
            tools = built_in(self.workspace, shell=shell, recall=recall, limits=self._limits)
        self._tools: Mapping[str, Tool] = MappingProxyType({tool.spec.name: tool for tool in tools})
        if len(self._tools) != len(tools):
            raise ConfigurationError("two tools have the same name")

    def specs(self, posture: Posture) -> tuple[Spec, ...]:
        """Return what is offered to a model: where nothing may be changed, tools that read.

        A shell that is off is not offered.
        """
        return tuple(
            tool.spec
            for tool in self._tools.values()
            if (tool.spec.reads_only or not posture.reads_only)
            and not (isinstance(tool, Shell) and tool.off)
        )

    def intent(self, call: Call) -> Intent:
        """Return what is recorded of a call before it runs."""
        tool = self._tools.get(call.name)
        if tool is None:
            return Intent()
        return Intent(tool.spec.reads_only, tool.spec.idempotent)

    def decide(self, call: Call, posture: Posture) -> Decision:
        """Return whether a call may run; one that cannot be read may, as `run` says what is wrong.

        The state directory is found by what a path leads to now; `run` holds to it whatever
        happens in between.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return ALLOWED
        try:
            access = tool.access(schema.read(call.arguments, tool.spec.parameters))
        except Fault:
            return ALLOWED
        return decide(access, posture)

    async def preview(self, call: Call) -> Pending | Outcome:
        """Return what a call would do, for a person who is asked; an outcome where it must fail.

        Nothing is changed.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return self._unknown(call.name)
        try:
            arguments = schema.read(call.arguments, tool.spec.parameters)
            if isinstance(tool, Foreseen):
                shown = await tool.preview(arguments)
            else:
                shown = Preview("arguments", json.dumps(arguments, indent=2, ensure_ascii=False))
            return Pending.over(call, shown, self.subject(call))
        except (Fault, UllageError, OSError) as error:
            return self._shown(_fault(error), dry_run=False)

    def subject(self, call: Call) -> Subject:
        """Return what a call is about, as far as its tool can tell."""
        with suppress(KeyError, Fault):
            tool = self._tools[call.name]
            arguments = schema.read(call.arguments, tool.spec.parameters)
            access = tool.access(arguments)
            if access.command and access.text:
                return Subject(call.name, "command", access.text)
            if len(access.writes) == 1:
                return Subject(call.name, "path", access.writes[0])
            return Subject(call.name, "arguments", json.dumps(arguments, sort_keys=True))
        return Subject(call.name, "arguments", call.arguments)

    async def run(self, call: Call, *, key: str, dry_run: bool = False) -> Outcome:
        """Run a call and return what a model is shown; nothing that it may write raises.

        With `dry_run` nothing is written or executed, and the outcome is marked. When cancelled,
        what was started is over before the cancellation goes on.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            outcome = self._unknown(call.name)
        else:
            try:
                arguments = schema.read(call.arguments, tool.spec.parameters)
                outcome = await self._journaled(tool, arguments, key, dry_run=dry_run)
            except (Fault, UllageError, OSError) as error:
                outcome = _fault(error)
        return self._shown(outcome, dry_run=dry_run)

    def _unknown(self, name: str) -> Outcome:
        return _failed(f"there is no tool {name!r:.80}; there are {', '.join(self._tools)}")

    async def _journaled(
        self, tool: Tool, arguments: Arguments, key: str, *, dry_run: bool
    ) -> Outcome:
        """Run a tool; what it may change in files is noted before, where somebody takes note.

        Files that are written here are noted one by one; around whatever else may change any of
        them, the whole workspace is.
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

    def _shown(self, outcome: Outcome, *, dry_run: bool) -> Outcome:
        text, cut = bounded(outcome.text, self._limits.characters)
        marks: dict[str, Any] = {**outcome.marks, **cut}
        if dry_run:
            marks["dry_run"] = True
        return replace(outcome, text=text, marks=marks)


def _fault(error: Exception) -> Outcome:
    return _failed(_said(error) if isinstance(error, OSError) else str(error))


def _failed(text: str) -> Outcome:
    return Outcome(f"error: {text}", is_error=True)


def _said(error: OSError) -> str:
    name = error.filename if isinstance(error.filename, str) else ""
    return f"{error.strerror or error}{f': {name}' if name else ''}"
