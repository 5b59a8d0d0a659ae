"""The tool `shell`: runs a command in the sandbox, with a time limit, or says that it is off.

It knows neither the parts of a sandbox nor permissions.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ullage.core.session.permissions import Access
from ullage.core.session.reach import Reach
from ullage.core.session.tools import Preview, Spec, ToolOutcome
from ullage.threads import finish
from ullage.tools import commands
from ullage.tools.bounds import RESULT_CHARACTERS, Kept
from ullage.tools.sandbox import Sandbox
from ullage.tools.tool import Arguments, Fault
from ullage.tools.workspace import Workspace

TIMED_OUT: Final = 124
"""The exit code of a command that took too long, as in coreutils' `timeout`."""

KILLED: Final = 128 + 9
"""The exit code of a command killed by SIGKILL, as in a shell."""

_PATIENCE_S: Final = 15.0
"""Seconds for the supervising process to kill what it started."""

SHELL: Final = Spec(
    name="shell",
    description="Run a shell command.",
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "the command"},
            "timeout_s": {"type": "integer", "minimum": 1, "description": "seconds it may take"},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    again="once",
    reach=frozenset({"private"}),
)


class Shell:
    """The tool `shell`; off, with a reason, if there is no sandbox (None) or it cannot run."""

    def __init__(
        self,
        workspace: Workspace,
        sandbox: Sandbox | None,
        characters: int = RESULT_CHARACTERS,
    ) -> None:
        self._workspace = workspace
        self._sandbox = sandbox
        self._characters = characters
        self.spec = _spec(sandbox)

    @property
    def off(self) -> str:
        """Why no command can run, or "" if commands can."""
        if self._sandbox is None:
            return "the operator has not turned it on"
        return self._sandbox.lacking(self._workspace)

    def access(self, arguments: Arguments) -> Access:
        """Return whether the command is known to only read, or names the state directory."""
        command = arguments["command"]
        named = any(self._workspace.protects(word) for word in commands.words(command))
        safe = commands.reads_only(command)
        return Access(changes=True, command=True, safe=safe, protected=named, text=command)

    async def preview(self, arguments: Arguments) -> Preview:
        """Return the command as it would run."""
        sandbox = self._demand_sandbox(arguments["command"])
        seconds = _seconds(sandbox, arguments)
        network = "the network is open" if sandbox.network else "no network"
        note = f"it is stopped after {seconds} s; {network}"
        return Preview("command", arguments["command"], note)

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Run a command in the workspace; an exit code other than 0 is a normal result."""
        del key
        command = arguments["command"]
        sandbox = self._demand_sandbox(command)
        if dry_run:
            return ToolOutcome(f"[dry run] not run: {command}")
        seconds = _seconds(sandbox, arguments)
        private = Path(tempfile.mkdtemp(prefix="ullage-"))
        try:
            kept, told = await self._run(
                sandbox.request(self._workspace, command, private), seconds
            )
        finally:
            shutil.rmtree(private, ignore_errors=True)
        return _outcome(kept, told, seconds)

    def _demand_sandbox(self, command: str) -> Sandbox:
        """Return the sandbox for a command; raise Fault if the command cannot run."""
        off = self.off
        if self._sandbox is None or off:
            raise Fault(f"the shell is off: {off}")
        if "\0" in command or not _encodable(command):
            raise Fault("the command holds a NUL character, or half a surrogate pair")
        return self._sandbox

    async def _run(self, request: dict[str, Any], seconds: float) -> tuple[Kept, dict[str, Any]]:
        report, told = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(Path(__file__).with_name("confine.py"))),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(told,),
                start_new_session=True,
                env={},
            )
        except BaseException:
            os.close(report)
            raise
        finally:
            os.close(told)
        kept = Kept(self._characters * 9 // 10)  # the rest is for marks
        try:
            order = json.dumps({**request, "report": told}).encode() + b"\n"
            late = not await self._follow_process(process, order, kept, seconds)
        finally:
            await finish(asyncio.ensure_future(_end_process(process)))
            with os.fdopen(report, "rb") as file:
                said = file.read()
        return kept, {**_read(said), "late": late}

    async def _follow_process(
        self, process: asyncio.subprocess.Process, order: bytes, kept: Kept, seconds: float
    ) -> bool:
        """Send the order and collect the output; return False if the time runs out first."""
        assert process.stdin is not None  # noqa: S101 - both are pipes, as requested
        assert process.stdout is not None  # noqa: S101
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(order)
                await process.stdin.drain()
                while data := await process.stdout.read(65_536):
                    kept.add(data)
                await process.wait()
        except TimeoutError:
            return False
        except ConnectionError:  # it ended before it had read the order, and sent no report
            return True
        return True


def _seconds(sandbox: Sandbox, arguments: Arguments) -> int:
    return int(min(arguments.get("timeout_s", sandbox.timeout_s), sandbox.longest_s))


def _outcome(kept: Kept, told: dict[str, Any], seconds: float) -> ToolOutcome:
    if "lacking" in told:
        raise Fault(f"the shell is off: the sandbox could not be set up ({told['lacking']})")
    text, marks = kept.text, kept.marks
    status = told.get("status")
    if told["late"]:
        text = _with(text, f"[stopped after {seconds} s; ask for more with timeout_s]")
        return ToolOutcome(text, is_error=True, exit_code=TIMED_OUT, marks=marks)
    if "processes" in told:
        text = _with(text, f"[stopped: more than {told['processes']} processes at once]")
        return ToolOutcome(text, is_error=True, exit_code=KILLED, marks=marks)
    for bound, what in (("memory", "of memory"), ("disk", "of disk")):
        if bound in told:
            size = f"{told[bound] / 1e9:g} GB {what}"
            text = _with(text, f"[stopped: more than {size}, the bound of the sandbox]")
            return ToolOutcome(text, is_error=True, exit_code=KILLED, marks=marks)
    if status is None:
        text = _with(text, "[the command ended the process that watched over it]")
        return ToolOutcome(text, is_error=True, exit_code=KILLED, marks=marks)
    # For a command that a signal killed, a shell returns 128 plus the signal's number.
    code = status if status >= 0 else 128 - status
    if code:
        text = _with(text, f"[exit code {code}]")
    return ToolOutcome(text or "[no output]", exit_code=code, marks=marks)


def _with(text: str, line: str) -> str:
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _spec(sandbox: Sandbox | None) -> Spec:
    granted = sandbox or Sandbox()
    network = "the network is open" if granted.network else "there is no network"
    open_to: frozenset[Reach] = frozenset({"untrusted", "outside"} if granted.network else ())
    return replace(
        SHELL,
        reach=SHELL.reach | open_to,
        description=(
            "Run a shell command in the workspace, in a sandbox: it reads and writes beneath the "
            f"workspace and $TMPDIR only, {network}, what it leaves running is ended with it. "
            f"It is stopped after {granted.timeout_s} s unless timeout_s says otherwise "
            f"(at most {granted.longest_s})."
        ),
    )


def _read(said: bytes) -> dict[str, Any]:
    """Return the report: a failed set-up takes precedence over how the command ended."""
    told: dict[str, Any] = {}
    decoder = json.JSONDecoder()
    text = said.decode().strip()
    while text:
        part, end = decoder.raw_decode(text)
        told = {**part, **told}
        text = text[end:].strip()
    return told


async def _end_process(process: asyncio.subprocess.Process) -> None:
    """Kill a command and all its descendants, and wait until that is done."""
    if process.stdin is not None:
        process.stdin.close()  # tells the supervising process to stop
    gone = asyncio.ensure_future(_drain_process(process))
    await asyncio.wait({gone}, timeout=_PATIENCE_S)
    if not gone.done():
        with suppress(ProcessLookupError):
            process.kill()
    await gone


async def _drain_process(process: asyncio.subprocess.Process) -> None:
    """Wait for the end; read the pipe meanwhile, because a full pipe would block it."""
    if process.stdout is not None:
        while await process.stdout.read(65_536):
            pass
    await process.wait()
