"""Notes of the file commands in addition to their answer: lines left out, an unknown model.

The module does not know commands.
"""

from __future__ import annotations

from ullage.cli.desk import say
from ullage.importers import ImportedSession
from ullage.runtime import default


def check_model(model: str | None) -> None:
    """Note an unknown model, with the most similar name in the table."""
    if model is None:
        return
    table = default().windows.table
    if table.row(model) is None and (near := table.suggest(model)):
        say(f"note: no model {model!r} is in the table; {near}")


def warn(session: ImportedSession) -> None:
    """Note the parts of a file that were left out."""
    for warning in session.warnings:
        say(f"note: {warning}")
