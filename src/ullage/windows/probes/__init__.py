"""Live probes: ask the chat's server for its window.

`probe` recognises the server and asks it. Each server has a module, with a generator that yields
requests. This package knows no HTTP client, no cache and no configuration.
"""

from collections.abc import Generator

from ullage.core.tokens.claim import Claim
from ullage.transport import HttpRequest, HttpResponse
from ullage.windows.probes.found import Asking, Found, root

__all__ = ["Asking", "Found", "catalogue", "probe", "root"]


def probe(
    base_url: str, model: str | None, api_key: str | None, now: float, known: str = ""
) -> Asking:
    """Ask the server of `base_url` for the window of `model`: see `recognise.probe`.

    The modules of the servers are loaded on first use.
    """
    from ullage.windows.probes import recognise

    return recognise.probe(base_url, model, api_key, now, known)


def catalogue(
    base_url: str, api_key: str | None, now: float
) -> Generator[HttpRequest, HttpResponse, tuple[dict[str, tuple[Claim, ...]], str]]:
    """Ask the server of `base_url` for its models: see `recognise.catalogue`."""
    from ullage.windows.probes import recognise

    return recognise.catalogue(base_url, api_key, now)
