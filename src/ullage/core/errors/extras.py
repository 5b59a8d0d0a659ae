"""The error for a missing package of an extra: one sentence, and one command that helps.

This module knows no packages.
"""

from __future__ import annotations

from typing import Final

from ullage.core.errors import ConfigurationError

ALL: Final = "all"
"""The extra with everything that the commands need on this platform."""


def command(extra: str = ALL) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'ullage[{extra}]'"


def explain_missing(what: str, package: object, extra: str = ALL) -> ConfigurationError:
    """Return the error for a missing package: what needs it, and the fix."""
    return ConfigurationError(
        f"{what} needs {package}, which is not installed: {command(extra)} (in a checkout: pip "
        f"install '.[{extra}]')"
    )
