"""Ask a scripted server as a driver would, and say what finding nothing looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.support.faults import Answer, FaultServer, Script, hanging, html, loading, of_json
from ullage.core.tokens.claim import Claim, acceptable
from ullage.transport import HttpRequest, Timeouts, Transport
from ullage.transport import HttpResponse as Got
from ullage.windows.probes import Asking, Found, probe

SHORT = Timeouts(connect_s=5.0, read_s=1.0)
NO_NUMBERS: tuple[Any, ...] = (
    None, "2048", "", 0, -2048, True, False, 2048.0, [2048], {}, 2**31 - 1, 10**30
)  # fmt: skip
BROKEN: Mapping[str, Answer] = {
    "missing": of_json({"error": "not found"}, 404),
    "refused": of_json({"error": {"message": "Invalid API Key"}}, 401),
    "failed": of_json({"error": "internal"}, 500),
    "loading": loading(),
    "web page": html(),
    "empty": Answer(),
    "no JSON": Answer(blocks=(b"{not json",)),
    "deep": Answer(blocks=(b"[" * 100_000,)),
    "null": of_json(None),
    "list": of_json([1, "2", None]),
    "text": of_json("8192"),
    "number": of_json(8192),
    "silent": hanging(),
}
"""Answers that tell nothing, whatever was asked."""


def drive(asking: Asking, ask: Callable[[HttpRequest], Got] | None = None) -> Found:
    """Perform what a probe asks for, over HTTP unless told otherwise."""
    ask = ask or Transport(SHORT).ask
    try:
        what = next(asking)
        while True:
            what = asking.send(ask(what))
    except StopIteration as done:
        return cast("Found", done.value)


def look(server: FaultServer, model: str | None = "m", known: str = "") -> Found:
    return drive(probe(server.base_url, model, "sk-key", 5.0, known))


def find(routes: Mapping[str, Script], model: str | None = "m") -> tuple[Found, list[str]]:
    """Return what was found at a server of these routes, and which paths were asked."""
    with FaultServer(routes) as server:
        found = look(server, model)
        return found, asked(server)


def hear(routes: Mapping[str, Script], model: str | None = "m", known: str = "") -> Found:
    """Do as `find` without a socket: for sweeps over many values, which HTTP carries alike."""

    def ask(what: HttpRequest) -> Got:
        path = what.url.removeprefix(_HOST)
        keys = (f"{'GET' if what.body is None else 'POST'} {path}", path, "*")
        answer = next((routes[k] for k in keys if k in routes), of_json({}, 404))
        assert isinstance(answer, Answer)
        return _SILENCE if answer.hang else Got(answer.status, b"".join(answer.blocks))

    return drive(probe(f"{_HOST}/v1", model, "sk-key", 5.0, known), ask)


_HOST = "http://127.0.0.1:1"
_SILENCE = Got(0, fault="ReadTimeout")


def asked(server: FaultServer) -> list[str]:
    return [request.path for request in server.requests]


def told(found: Found) -> list[tuple[str, int]]:
    """Return kind and tokens of every claim, which are all of this probe and all believable."""
    for claim in found.claims:
        assert (claim.source, claim.at) == ("probe", 5.0)
        assert claim.where.startswith("http://127.0.0.1:")
        assert acceptable(claim)
    assert found.recognised
    assert not found.complaint
    return [(claim.kind, claim.tokens) for claim in found.claims]


def first(found: Found) -> Claim:
    told(found)
    return found.claims[0]


def nothing(found: Found) -> str:
    """Expect no claim, and return the one complaint."""
    assert found.claims == ()
    assert found.complaint
    assert found.complaint.count("http://127.0.0.1:") == 1
    assert "sk-key" not in found.complaint
    return found.complaint


def broken(routes: Mapping[str, Script], path: str) -> list[dict[str, Script]]:
    """Return the routes once for every broken answer at one of the paths."""
    assert path in routes
    return [{**routes, path: answer} for answer in BROKEN.values()]


def listing(*ids: str, **more: Any) -> Answer:
    """Return a list of models in the OpenAI shape."""
    data = [{"id": i, "object": "model", **more} for i in ids]
    return of_json({"object": "list", "data": data})
