"""The model of a session: recorded values replace options that were not given.

The module starts nothing and asks no server.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ullage.agent import Session
from ullage.core.errors import ConfigurationError
from ullage.core.session.log.fold import Data


def complete(given: argparse.Namespace, session: Session) -> argparse.Namespace:
    """Return the options, completed with those recorded in the session.

    Raises ConfigurationError for a session whose server needs a missing credential.
    """
    made = argparse.Namespace(**vars(given))
    served = session.fold.served
    if not served:  # older than this record
        return made
    made.dialect = given.dialect or str(served["dialect"])
    if given.base_url is None and given.embedded is None:
        made.window = given.window or served.get("window")
        made.model = given.model or str(served["model"])
        if served.get("embedded"):
            made.embedded = str(served["embedded"])
        else:
            made.base_url = str(served["base_url"])
            made.api_key_env = _key_variable(given, session.name, served)
    else:
        made.preferred = str(served["model"])
    return complete_work(made, session)


def complete_work(given: argparse.Namespace, session: Session) -> argparse.Namespace:
    """Return the options, completed with the session's folder, tools and subagents.

    Raises ConfigurationError if the folder no longer exists.
    """
    made = argparse.Namespace(**vars(given))
    served = session.fold.served
    if made.workspace is None:
        made.workspace = _workspace(session.name, served)
    if made.tools is None:
        made.tools = served.get("tools")
    if getattr(made, "subagents", None) is None:
        made.subagents = served.get("subagents")
    return made


def needs_nothing(session: Session) -> bool:
    """Tell whether the server of a session is known and needs no further credentials."""
    served = session.fold.served
    variable = served.get("key_variable")
    ready = variable is None or bool(os.environ.get(str(variable)))
    return bool(served.get("base_url")) and not served.get("needs") and ready


def _key_variable(given: argparse.Namespace, name: str, served: Data) -> str | None:
    """Return the variable of the key, or None if the server needs none."""
    needs = [str(need) for need in served.get("needs") or ()]
    where = served["base_url"]
    if "program" in needs:
        raise ConfigurationError(
            f"session {name} was run on {served['model']}, which a program of its own answers for: "
            "give --base-url URL or --embedded, or resume it from that program"
        )
    for need, what in (("headers", "headers"), ("url", "a user or password in its URL")):
        if need in needs:
            raise ConfigurationError(
                f"session {name} was run on {where} with {what}, which no log keeps: give "
                "--base-url URL with them, or resume it from the program that began it"
            )
    if given.api_key_env is not None:
        return str(given.api_key_env)
    if "key" in needs:
        raise ConfigurationError(
            f"session {name} was run on {where} with a key, which no log keeps: put it into a "
            "variable and name that by --api-key-env NAME"
        )
    variable = served.get("key_variable")
    if variable is not None and not os.environ.get(str(variable)):
        raise ConfigurationError(
            f"session {name} was run on {where} with the key in {variable}, which is not set: set "
            "it, or name another variable by --api-key-env NAME"
        )
    return None if variable is None else str(variable)


def _workspace(name: str, served: Data) -> str | None:
    """Return the folder in which the session was run, or None."""
    folder = served.get("workspace")
    if folder is None:
        return None
    if not Path(str(folder)).is_dir():
        raise ConfigurationError(
            f"session {name} was run in {folder}, which is no folder any more: give --workspace DIR"
        )
    return str(folder)
