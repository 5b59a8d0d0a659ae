"""What a hostile client can do to `ullage serve`: nothing but be refused or be forwarded.

Raw sockets against the real process; what reaches the server behind is counted and read.
"""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pytest

from tests.proxy.sockets import (
    BOUNDED,
    Behind,
    Line,
    Reply,
    Served,
    answered,
    ask,
    chat,
    of_json,
    replies,
    request,
    serving,
)
from ullage.cli.main import main
from ullage.config.serving import Serve, Upstream
from ullage.core.errors import ConfigurationError

CHAT: Final = "/v1/chat/completions"
BODY: Final = chat()
MB: Final = 1 << 20
TOKENS: Final = {"alpha": "token-alpha-0123456789", "beta": "token-beta-0123456789"}
KEY: Final = "sk-operator-9876543210abcdef"
OWN: Final = "sk-client-5550001112223334"


class Rig(NamedTuple):
    """A proxy, the server behind it, and one that nobody may ever reach."""

    proxy: Served
    behind: Behind
    canary: Behind

    def asked(self, data: bytes) -> tuple[Reply, list[bytes]]:
        """Send bytes; return the answer, and the heads that reached the server behind for it."""
        before = len(self.behind.heads)
        reply = ask(self.proxy.port, data)
        return reply, sent(self.behind, before)


def sent(behind: Behind, before: int) -> list[bytes]:
    """Return heads beyond the first `before`, without the guard's own questions for the window."""
    heads = behind.heads[before:]
    return [h for h in heads if not h.startswith(b"GET ") or b"\r\nUser-Agent: python" not in h]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Behind() as behind, Behind() as canary:
        upstream = {"name": "only", "base_url": behind.url}
        with serving(tmp_path_factory.mktemp("rig"), [upstream], hosts=["proxy.test"]) as proxy:
            ask(proxy.port, request("POST", CHAT, BODY))
            yield Rig(proxy, behind, canary)
            assert proxy.alive
            assert "Traceback" not in proxy.log


# --- nothing but the configuration chooses the upstream -------------------------------------------


def spellings(evil: str) -> dict[str, bytes]:
    """Return ways to ask for another server."""
    url = f"http://{evil}"
    fields = {
        "base_url": url, "api_base": url, "upstream": url, "endpoint": url, "host": evil,
        "proxy": url, "callback_url": url, "metadata": {"base_url": url},
    }  # fmt: skip
    query = f"base_url={url}&api_base={url}&upstream={url}&url={url}"
    targets = {
        "absolute form": f"{url}{CHAT}",
        "absolute form, no path": url,
        "absolute form with a user": f"http://localhost@{evil}{CHAT}",
        "absolute form, https": f"https://{evil}{CHAT}",
        "two slashes": f"//{evil}{CHAT}",
        "two slashes within": f"/v1//{evil}/chat/completions",
        "dots": "/v1/../v1/chat/completions",
        "dots up and out": f"/v1/chat/completions/../../../{evil}",
        "dots, escaped": "/v1/%2e%2e/v1/chat/completions",
        "slash, escaped": "/v1%2fchat%2fcompletions",
        "backslashes": f"/\\{evil}\\v1\\chat\\completions",
        "at": f"@{evil}{CHAT}",
        "at, in a path": f"/@{evil}{CHAT}",
        "no slash": f"{evil}{CHAT}",
        "query": f"{CHAT}?{query}",
        "fragment": f"{CHAT}#@{evil}/",
        "parameter": f"{CHAT};host={evil}",
        "NUL, escaped": f"{CHAT}%00",
    }
    headers = {
        "X-Forwarded-Host": evil, "X-Forwarded-Server": evil, "Forwarded": f"host={evil}",
        "X-Original-URL": f"{url}{CHAT}", "X-Rewrite-URL": f"{url}{CHAT}", "X-Host": evil,
        "X-Upstream": url, "X-Ullage-Upstream": url, "Destination": url, "Referer": url,
        "Proxy-Connection": "keep-alive", "X-HTTP-Method-Override": "GET", "Location": url,
    }  # fmt: skip
    made = {name: request("POST", target, BODY) for name, target in targets.items()}
    made |= {k: request("POST", CHAT, BODY, f"{k}: {v}") for k, v in headers.items()}
    made |= {f"field {k}": request("POST", CHAT, chat(**{k: v})) for k, v in fields.items()}
    models = (url, f"{url}/v1", f"openai/{url}", f"@{evil}", f"../{evil}", f"{evil}#", "\n" + url)
    made |= {f"model {n}": request("POST", CHAT, chat(model=m)) for n, m in enumerate(models)}
    made |= {
        "Host": request("POST", CHAT, BODY, host=evil),
        "Host twice": request("POST", CHAT, BODY, f"Host: {evil}"),
        "Host with a user": request("POST", CHAT, BODY, host=f"localhost@{evil}"),
        "CONNECT": f"CONNECT {evil} HTTP/1.1\r\nHost: {evil}\r\n\r\n".encode(),
        "CONNECT, own host": f"CONNECT {evil} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        "a model's name as a path": request("GET", f"/v1/models/@{evil}"),
        "a URL as a path": request("GET", f"/v1/models/{url}/"),
        "upgrade": request("POST", CHAT, BODY, "Connection: Upgrade", "Upgrade: h2c"),
    }
    return made


@pytest.mark.parametrize("name", spellings("127.0.0.1:1"))
def test_no_spelling_of_another_server_is_followed(rig: Rig, name: str):
    evil = f"127.0.0.1:{rig.canary.port}"
    reply, heads = rig.asked(spellings(evil)[name])
    assert rig.canary.connections == 0
    if heads:
        assert reply.status == 200
        first, *lines = heads[0].split(b"\r\n")
        target = first.split(b" ")[1]
        assert target.startswith((b"/v1/chat/completions", b"/v1/models/"))
        hosts = [line for line in lines if line.lower().startswith(b"host:")]
        assert hosts == [f"Host: 127.0.0.1:{rig.behind.port}".encode()]
        assert len(heads) == 1
    else:
        assert 400 <= reply.status < 500


@pytest.mark.slow
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_of_the_upstream_is_not_followed_and_its_address_goes_nowhere(
    tmp_path: Path, status: int
):
    with Behind() as canary:
        away = (f"Location: {canary.url}{CHAT}", "Set-Cookie: a=b", "Server: x")

        def redirected(head: bytes, body: bytes) -> bytes:
            return of_json({}, f"{status} Elsewhere", *away)

        with Behind(redirected) as behind, serving(tmp_path, [behind.url]) as proxy:
            reply = ask(proxy.port, request("POST", CHAT, BODY))
            listed = ask(proxy.port, request("GET", "/v1/models"))
        assert (reply.status, listed.status, canary.connections) == (status, status, 0)
        names = {name for name, _ in (*reply.headers, *listed.headers)}
        assert not names & {"location", "set-cookie", "server"}


def test_headers_that_are_not_on_the_list_stay_here(rig: Rig):
    private = ("Cookie: a=secret", "X-Private: secret", "Proxy-Authorization: Basic secret")
    _, heads = rig.asked(request("POST", CHAT, BODY, *private, "TE: trailers", "Via: 1.1 x"))
    assert b"secret" not in heads[0]
    assert not {b"te:", b"via:"} & {line.split(b" ")[0].lower() for line in heads[0].split(b"\r\n")}


# --- hosts, pages in browsers, tokens -------------------------------------------------------------

HOSTS: Final = {
    "localhost": True, "LOCALHOST:8790": True, "127.0.0.1": True, "[::1]:80": True,
    "proxy.test": True, "proxy.test:443": True, "evil.test": False, "localhost.evil.test": False,
    "localhost.": False, "127.0.0.1.evil.test": False, "127.0.0.1.nip.io": False,
    "0.0.0.0": False, "127.1": False, "2130706433": False, "0x7f.1": False, "[::]": False,
    "[::ffff:127.0.0.1]": False, "localhost@evil.test": False, "evil.test#localhost": False,
    "localhost, evil.test": False, "localhost evil.test": False, "169.254.169.254": False,
}  # fmt: skip


@pytest.mark.parametrize(("host", "taken"), HOSTS.items())
def test_only_hosts_that_are_served_are_taken(rig: Rig, host: str, taken: bool):
    reply, heads = rig.asked(request("GET", "/v1/models", host=host))
    assert (reply.status == 200, len(heads)) == (taken, int(taken))
    if not taken:
        assert reply.get("x-ullage-error") == "host_refused"


@pytest.mark.parametrize("host", ["", "Host: localhost"])
def test_a_request_without_one_host_is_refused(rig: Rig, host: str):
    more = [host] if host else []
    reply, heads = rig.asked(request("POST", CHAT, BODY, *more, host="localhost" if host else ""))
    assert (reply.status, heads) == (400, [])


@pytest.mark.parametrize("page", [CHAT, "/metrics", "/ullage/sessions", "/healthz"])
@pytest.mark.parametrize("origin", ["null", "http://evil.test", "http://localhost", "file://"])
def test_pages_in_browsers_may_do_nothing_and_learn_nothing(rig: Rig, origin: str, page: str):
    method = "POST" if page == CHAT else "GET"
    body = BODY if page == CHAT else b""
    reply, heads = rig.asked(request(method, page, body, f"Origin: {origin}"))
    assert (reply.status, heads) == (403, [])
    assert not any(name.startswith("access-control-") for name, _ in reply.headers)


def test_a_preflight_of_a_browser_allows_nothing(rig: Rig):
    asks = ("Origin: http://evil.test", "Access-Control-Request-Method: POST")
    reply, heads = rig.asked(request("OPTIONS", CHAT, b"", *asks))
    assert (reply.status, heads) == (403, [])


SMALL: Final = [{"model": "gpt-4", "window": 8_192}]
"""The operator's word on a window that no host here tells."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Behind(echoing) as behind, Behind() as canary:
        upstreams = [
            {"name": "ours", "base_url": behind.url, "api_key": KEY, "models": ["m", "gpt-4"]},
            {"name": "theirs", "base_url": behind.url, "models": ["own"]},
            {"name": "gone", "base_url": "http://127.0.0.1:1", "api_key": KEY, "models": ["gone"]},
        ]
        folder = tmp_path_factory.mktemp("guarded")
        with serving(folder, upstreams, tokens=TOKENS, idle_s=2, rules=SMALL) as proxy:
            yield Rig(proxy, behind, canary)
            assert "Traceback" not in proxy.log


def echoing(head: bytes, body: bytes) -> bytes:
    """Answer as the request's own text says; an error repeats all that it was sent."""
    repeated = {"error": {"message": head.decode("latin-1"), "code": "invalid_api_key"}}
    for status in ("400", "401", "403", "404", "413", "429", "500", "503"):
        if f"say {status}".encode() in body:
            return of_json(repeated, f"{status} No", "Retry-After: 0")
    if b"say broken" in body:
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n"
    if b"say rubbish" in body:
        return b"\x00\xff rubbish " + head + b"\r\n\r\n"
    return answered(head, body)


def says(text: str, model: str = "m", **fields: Any) -> bytes:
    return chat(model=model, messages=[{"role": "user", "content": f"say {text}"}], **fields)


STRANGERS: Final = {
    "nothing": (),
    "wrong": ("Authorization: Bearer wrong",),
    "empty": ("Authorization: Bearer ", "x-api-key: "),
    "half": (f"x-api-key: {TOKENS['alpha'][:-1]}",),
    "more": (f"x-api-key: {TOKENS['alpha']}x",),
    "in another case": (f"x-api-key: {TOKENS['alpha'].upper()}",),
    "the name": ("x-ullage-token: alpha",),
    "basic": (f"Authorization: Basic {base64.b64encode(TOKENS['alpha'].encode()).decode()}",),
    "cookie": (f"Cookie: token={TOKENS['alpha']}",),
    "two spaces": (f"Authorization: Bearer  {TOKENS['alpha']}",),
    "bytes": ("x-ullage-token: \xff\xfe",),
    "the operator's key": (f"Authorization: Bearer {KEY}",),
}
ROUTES: Final = (
    ("POST", CHAT), ("POST", "/v1/messages"), ("POST", "/v1/responses"), ("POST", "/api/chat"),
    ("POST", "/api/generate"), ("GET", "/v1/models"), ("GET", "/metrics"),
    ("GET", "/ullage/sessions"), ("GET", "/ullage/context/x"), ("GET", "/nowhere"),
)  # fmt: skip


@pytest.mark.parametrize("who", STRANGERS)
def test_strangers_reach_nothing(guarded: Rig, who: str):
    before = len(guarded.behind.heads)
    for method, path in ROUTES:
        body = BODY if method == "POST" else b""
        reply = ask(guarded.proxy.port, request(method, path, body, *STRANGERS[who]))
        assert reply.status == 401
        assert reply.get("x-ullage-error") == "token_missing"
    query = ask(guarded.proxy.port, request("POST", f"{CHAT}?token={TOKENS['alpha']}", BODY))
    assert query.status == 401
    assert len(guarded.behind.heads) == before


TWO: Final = (f"Authorization: Bearer {OWN}", "x-api-key: second-of-theirs")


def credentials(head: bytes) -> set[bytes]:
    lines = head.split(b"\r\n")[1:]
    found = [line for line in lines if line.lower().startswith((b"authorization:", b"x-api-key:"))]
    return {line.split(b" ")[-1] for line in found}


@pytest.mark.parametrize(
    ("model", "shown", "told"),
    [
        ("m", (f"Authorization: Bearer {TOKENS['alpha']}",), {KEY.encode()}),
        ("m", (f"x-api-key: {TOKENS['beta']}",), {KEY.encode()}),
        ("m", (f"x-ullage-token: {TOKENS['beta']}", f"x-api-key: {OWN}"), {KEY.encode()}),
        ("own", (f"Authorization: Bearer {TOKENS['alpha']}",), set()),
        ("own", (f"x-api-key: {TOKENS['alpha']}", f"Authorization: Bearer {OWN}"), {OWN.encode()}),
        ("own", (f"x-ullage-token: {TOKENS['alpha']}", f"x-api-key: {OWN}"), {OWN.encode()}),
        ("own", (f"x-ullage-token: {TOKENS['alpha']}", *TWO), {OWN.encode(), b"second-of-theirs"}),
        ("m", (f"x-ullage-token: {TOKENS['alpha']}", *TWO), {KEY.encode(), b"second-of-theirs"}),
    ],
)
def test_an_upstream_sees_the_operators_key_or_the_clients_and_never_a_token(
    guarded: Rig, model: str, shown: tuple[str, ...], told: set[bytes]
):
    reply, heads = guarded.asked(request("POST", CHAT, chat(model=model), *shown))
    assert (reply.status, len(heads)) == (200, 1)
    assert credentials(heads[0]) == told


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_no_token_of_another_client_goes_to_an_upstream(guarded: Rig):
    shown = (f"x-ullage-token: {TOKENS['alpha']}", f"Authorization: Bearer {TOKENS['beta']}")
    _, heads = guarded.asked(request("POST", CHAT, chat(model="own"), *shown))
    assert [credentials(head) for head in heads] == [set()]


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
@pytest.mark.parametrize("name", ["Authorization: Bearer", "x-api-key:", "x-ullage-token:"])
def test_a_credential_that_comes_twice_is_refused(guarded: Rig, name: str):
    shown = (f"{name} {TOKENS['alpha']}", f"{name} {TOKENS['beta']}")
    reply, heads = guarded.asked(request("POST", CHAT, chat(model="own"), *shown))
    assert (reply.status, heads) == (400, [])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "proxy.test"])
def test_no_address_beyond_this_machine_is_bound_without_a_token(
    host: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(ConfigurationError, match="no token is set"):
        Serve((Upstream("a", "http://127.0.0.1:1"),), host=host)
    assert main(["serve", "--upstream", "http://127.0.0.1:1", "--host", host, "--port", "0"]) == 1
    assert "no token is set" in capsys.readouterr().err


# --- secrets and texts ----------------------------------------------------------------------------


def spelled(secret: str) -> list[bytes]:
    """Return a secret as it is and as encodings write it."""
    raw = secret.encode()
    forms = {
        raw, raw.hex().encode(), base64.b64encode(raw)[:-4], quote(secret, safe="").encode(),
        base64.urlsafe_b64encode(raw)[:-4], base64.b64encode(b":" + raw)[4:-4],
        json.dumps(secret)[1:-1].encode(), raw[::-1],
    }  # fmt: skip
    return sorted(forms)


def troubles() -> Iterator[bytes]:
    """Yield requests that end in each kind of error, and some that end well."""
    shown = (f"x-ullage-token: {TOKENS['alpha']}", f"Authorization: Bearer {OWN}")
    wrong = (f"Authorization: Bearer {OWN}",)
    for status in (400, 401, 403, 404, 413, 429, 500, 503):
        yield request("POST", CHAT, says(str(status)), *shown)
        yield request("POST", CHAT, says(str(status), stream=True), *shown)
        yield request("POST", "/v1/completions", says(str(status)), *shown)
    for text in ("broken", "rubbish"):
        yield request("POST", CHAT, says(text), *shown)
        yield request("POST", CHAT, says(text, stream=True), *shown)
        yield request("POST", "/api/generate", says(text), *shown)
    for model in ("gone", "nobody's", "own", "m"):
        yield request("POST", CHAT, says("hello", model), *shown)
        yield request("POST", "/v1/messages", says("hello", model), *shown)
    yield request("POST", CHAT, b"[" * 200, *shown)
    yield request("POST", CHAT, b"{", *shown)
    yield request("POST", CHAT, says("hello"), *wrong)
    yield request("POST", CHAT, says("hello"), *shown, "x-ullage-session: " + "y" * 300)
    yield request("POST", CHAT, says("hello"), *shown, "Content-Encoding: gzip")
    yield request("POST", CHAT, says("hello"), *shown, "Content-Length: 1")
    yield request("POST", "/nowhere", says("hello"), *shown)
    yield request("POST", CHAT, says("hello"), *shown, host="evil.test")
    for page in ("/metrics", "/ullage/sessions", "/readyz", "/healthz"):
        yield request("GET", page, b"", *shown)


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_no_key_is_in_any_answer_log_page_or_file(guarded: Rig):
    seen = [ask(guarded.proxy.port, data, wait_s=10).raw for data in troubles()]
    assert sum(map(bool, seen)) > 30
    answers = b"".join(seen)
    written = guarded.proxy.log.encode() + guarded.proxy.stored
    assert b"INFO" in written
    for secret in (KEY, *TOKENS.values()):
        for form in spelled(secret):
            assert form not in answers
            assert form not in written
    assert not [form for form in spelled(OWN) if form in written]


def conversation(word: str, turns: int = 60) -> list[dict[str, str]]:
    made = [{"role": "user", "content": f"{word} is the task, and it is to be done well"}]
    for n in range(turns):
        made.append({"role": "assistant", "content": f"{word}A{n} " + "lorem ipsum " * 40})
        made.append({"role": "user", "content": f"{word}U{n} " + "dolor sit amet " * 40})
    return made


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_two_tokens_never_share_a_summary_though_the_operators_key_is_one(guarded: Rig):
    body = chat(model="gpt-4", messages=conversation("tenant"))
    for token in TOKENS.values():
        reply = ask(guarded.proxy.port, request("POST", CHAT, body, f"x-api-key: {token}"))
        assert reply.get("x-ullage-compaction")
    scopes = checkpoints(guarded.proxy.folder / "proxy.db")
    assert len(scopes) == len(set(scopes)) == 2


def checkpoints(path: Path) -> list[str]:
    import apsw

    found = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = found.execute("select * from records").fetchall()
    found.close()
    return [str(row[2]) for row in rows if row[1] == "checkpoint"]


@pytest.mark.parametrize("kept", [False, True])
def test_the_store_holds_what_was_left_out_only_where_it_is_told_to(tmp_path: Path, kept: bool):
    messages = conversation("zebra")
    with (
        Behind() as behind,
        serving(tmp_path, [behind.url], store_transcripts=kept, rules=SMALL) as proxy,
    ):
        body = chat(model="gpt-4", messages=messages)
        reply = ask(proxy.port, request("POST", CHAT, body))
        assert "before=" in (reply.get("x-ullage-compaction") or "")
        stored = proxy.stored
        modes = [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("proxy.db*")]
    answers = [m["content"].encode() for m in messages if m["role"] == "assistant"]
    assert any(text in stored for text in answers) is kept  # a summary may quote what users said
    assert set(modes) == {0o600}


def test_the_pages_and_the_log_show_no_text_of_a_conversation(rig: Rig):
    said = chat(messages=[{"role": "user", "content": "zebra crossing"}], model="m")
    rig.asked(request("POST", CHAT, said))
    pages = [ask(rig.proxy.port, request("GET", p)) for p in ("/metrics", "/ullage/sessions")]
    assert not [page for page in pages if b"zebra" in page.raw]
    assert "zebra" not in rig.proxy.log


def test_what_an_answer_says_cannot_become_a_header(rig: Rig):
    name = "m\r\nx-evil: 1"
    reply, _ = rig.asked(request("POST", CHAT, chat(model=name)))
    assert reply.status == 200
    assert reply.get("x-evil") is None
    page = ask(rig.proxy.port, request("GET", "/metrics"))
    assert "\nx-evil" not in page.body.decode()
    assert len(replies(reply.raw, closed=False)) == 1


def test_a_connection_that_was_refused_can_go_on(rig: Rig):
    with Line(rig.proxy.port) as line:
        line.send(request("GET", "/nowhere") + request("GET", "/healthz"))
        assert [reply.status for reply in line.read(until=2)] == [404, 200]
