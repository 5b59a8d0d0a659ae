"""What the commands on files tell beside their answer: lines left out, a model nobody knows.

It knows no command.
"""

from __future__ import annotations

from ullage.cli.desk import say
from ullage.importers import ImportedSession
from ullage.runtime import default


def check_model(model: str | None) -> None:
    """Tell where the table has no such model, and one with a name much like it."""
    if model is None:
        return
    table = default().windows.table
    if table.row(model) is None and (near := table.suggest(model)):
        say(f"note: no model {model!r} is in the table; {near}")


def warn(session: ImportedSession) -> None:
    """Tell what of a file was left out."""
    for warning in session.warnings:
        say(f"note: {warning}")
