"""One parser for `ullage.toml`, the environment, command line options and the proxy's file.

`schema` lists the settings, `layers` knows the place of each value, `parse` reads all layers by the
schema, `sources` finds the layers, `settings` and `serving` are the resulting values. The package
does not know the effect of a setting. It reads nothing at import. It loads msgspec only if
something is set, since that would double the time of an import.
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
