"""What the tests of provider listings share: the recordings, and ways to drive an asking.

No provider can be reached from here: the recordings are of the documented shape, say where each was
written down, and hold the claims that they must give.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.faults import Answer, FaultServer
from tests.support.recording import Recording
from ullage.core.tokens.window import resolve
from ullage.transport import HttpResponse as Got
from ullage.transport import Timeouts, Transport
from ullage.windows.listings import Asking, Listed, Listings

FOLDER = Path(__file__).parent.parent / "recordings" / "listings"
NOW = 1_000.0
KEY = "sk-row"

LISTINGS = Listings()
PUBLISHING = sorted(name for name in LISTINGS.names() if LISTINGS.publishes(name))

Said = dict[str, list[tuple[str, int]]]

# What each recording must give, by model: kind and tokens. The first model is asked for by name.
SAID: dict[str, Said] = {
    path.stem: {
        model: [(kind, tokens) for kind, tokens in found]
        for model, found in json.loads(path.read_text("utf-8"))["claims"].items()
    }
    for path in sorted(FOLDER.glob("*.json"))
}


def sync(asking: Asking, patience: Timeouts | None = None) -> Listed:
    """Drive an asking to its end; more than 60 requests are a loop."""
    transport = Transport(patience)
    try:
        what = next(asking)
        for _ in range(60):
            what = asking.send(transport.ask(what))
    except StopIteration as done:
        listed: Listed = done.value
        return listed
    raise AssertionError(f"still asking: {what.url}")


def recorded(provider: str) -> dict[str, tuple[Answer, ...]]:
    return Recording.load(FOLDER / f"{provider}.json").routes()


def chat(provider: str, server: FaultServer) -> str:
    """Return a chat's base URL at a server that stands in for the provider's host."""
    account = "/client/v4/accounts/acc0/ai" if provider == "cloudflare" else ""
    return f"{server.root_url}{account}/v1"


def first(provider: str) -> str:
    return next(iter(SAID[provider]))


def ask(provider: str, server: FaultServer, model: str | None, key: str | None = KEY) -> Asking:
    return LISTINGS.ask(provider, chat(provider, server), model, key, NOW)


def asked(server: FaultServer) -> list[str]:
    return [request.path for request in server.requests]


def said(listed: Listed) -> Said:
    return {m: [(c.kind, c.tokens) for c in found] for m, found in listed.claims_by_model.items()}


def fed(provider: str, model: str | None, *bodies: Any) -> Listed:
    """Answer what is asked with these bodies in order (the last one stays), without a server."""
    asking = LISTINGS.ask(provider, "http://h/client/v4/accounts/a/v1", model, None, NOW)
    left = list(bodies)
    try:
        next(asking)
        while True:
            body = left.pop(0) if len(left) > 1 else left[0]
            got = body if isinstance(body, Got) else Got(200, json.dumps(body).encode())
            asking.send(got)
    except StopIteration as done:
        listed: Listed = done.value
        return listed


def windowless(listed: Listed, model: str) -> None:
    """Expect no bound for a model, and one line that says why."""
    assert not resolve(listed.claims(model)).known
    about = listed.about(model)
    assert about
    assert "\n" not in about
