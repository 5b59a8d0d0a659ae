"""One parser for `ullage.toml`, the environment, command line options and the proxy's file.

`schema` says what may be set, `layers` where a value stood, `parse` reads all layers by the
schema, `sources` finds the layers, `settings` and `serving` are the values that come out. It does
not know what a setting does. Nothing is read at import, and msgspec is loaded only where something
is set: it would double the time of an import.
"""

from ullage.config.settings import Configured, Settings, SummarizerSettings
from ullage.config.sources import (
    credentials,
    files,
    get_logger,
    given_options,
    load,
    set_log_levels,
    variable,
    variables,
)

__all__ = [
    "Configured",
    "Settings",
    "SummarizerSettings",
    "credentials",
    "files",
    "get_logger",
    "given_options",
    "load",
    "set_log_levels",
    "variable",
    "variables",
]
