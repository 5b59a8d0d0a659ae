"""The tools of a model, and the executor that runs their calls.

This package knows no log, no provider and no user. `core.session.permissions` decides which calls
may run.
"""

from ullage.tools.executor import Executor, ToolLimits, make_tools
from ullage.tools.sandbox import Sandbox
from ullage.tools.tool import Arguments, Fault, Tool
from ullage.tools.workspace import Workspace

__all__ = [
    "Arguments",
    "Executor",
    "Fault",
    "Sandbox",
    "Tool",
    "ToolLimits",
    "Workspace",
    "make_tools",
]
