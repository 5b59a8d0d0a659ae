"""Heads of requests: who may ask, under which name, and which headers go where."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.config.serving import Serve, Upstream
from ullage.proxy.body import RequestRefused
from ullage.proxy.head import RequestHead, back, read

UPSTREAM = Upstream("main", "http://127.0.0.1:1")
KEYED = Upstream("keyed", "http://127.0.0.1:1", api_key="the-operators")
OPEN = Serve((UPSTREAM,))
CLOSED = Serve((UPSTREAM,), tokens={"ann": "a" * 24, "bob": "b" * 24})
HOST = (b"Host", b"localhost:8790")


def of(*headers: tuple[bytes, bytes], serve: Serve = OPEN, **more: Any) -> RequestHead:
    scope = {"method": "POST", "path": "/v1/x", "headers": [HOST, *headers], **more}
    return read(scope, serve, "10.0.0.5")


def refused(*headers: tuple[bytes, bytes], serve: Serve = OPEN) -> tuple[int, str]:
    with pytest.raises(RequestRefused) as caught:
        of(*headers, serve=serve)
    return caught.value.status, caught.value.code


# --- who may ask ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [b"localhost", b"LOCALHOST:1", b"127.0.0.1:80", b"[::1]:80", b"10.0.0.5:80", b"box.example"],
)
def test_hosts_that_are_known_are_served(host: bytes) -> None:
    scope = {"method": "GET", "path": "/", "headers": [(b"host", host)]}
    assert read(scope, Serve((UPSTREAM,), hosts=("Box.example",)), "10.0.0.5").method == "GET"


@pytest.mark.parametrize(
    "host",
    [b"evil.example", b"localhost.evil.example", b"", b"127.0.0.1.evil.example", b"[::2]"],
)
def test_any_other_host_is_refused(host: bytes) -> None:
    with pytest.raises(RequestRefused, match="does not serve that host") as caught:
        read({"method": "GET", "path": "/", "headers": [(b"host", host)]}, OPEN, "127.0.0.1")
    assert caught.value.status == 403


@pytest.mark.parametrize("hosts", [[], [HOST, HOST]], ids=["none", "two"])
def test_a_request_names_its_host_once(hosts: Any) -> None:
    with pytest.raises(RequestRefused, match="names its host once"):
        read({"method": "GET", "path": "/", "headers": hosts}, OPEN, "127.0.0.1")


def test_pages_in_browsers_are_refused_unless_they_are_allowed() -> None:
    origin = (b"Origin", b"https://app.example")
    assert refused(origin) == (403, "origin_refused")
    assert refused((b"origin", b"null")) == (403, "origin_refused")
    allowed = Serve((UPSTREAM,), origins=("https://app.example",))
    assert of(origin, serve=allowed).client is None
    assert refused(origin, (b"origin", b"https://b.example"), serve=allowed)[0] == 403


def test_compressed_bodies_are_refused() -> None:
    assert refused((b"content-encoding", b"gzip")) == (415, "encoding_refused")
    assert of((b"content-encoding", b" Identity ")).client is None


@pytest.mark.parametrize(
    ("raw", "path"),
    [(b"/v1/x", "/v1/x"), (b"/v1/%78", ""), (b"/v1%2fx", ""), (b"/\xe9", "/\xe9")],
)
def test_a_path_is_read_as_it_was_written(raw: bytes, path: str) -> None:
    assert of(raw_path=raw).path == path


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        (b"x-ullage-token", b"a" * 24),
        (b"Authorization", b"Bearer " + b"a" * 24),
        (b"authorization", b"bearer " + b"a" * 24),
        (b"x-api-key", b"a" * 24),
    ],
)
def test_a_token_is_known_wherever_clients_can_put_it_and_goes_no_further(
    header: tuple[bytes, bytes],
) -> None:
    head = of(header, serve=CLOSED)
    assert (head.client, head.credential) == ("ann", None)
    onward = head.onward(UPSTREAM)
    assert not any(b"a" * 24 in value for _, value in onward)


def test_a_key_beside_the_token_goes_on() -> None:
    token, key = (b"x-ullage-token", b"b" * 24), (b"authorization", b"Bearer key")
    head = of(token, key, serve=CLOSED)
    assert (head.client, head.credential) == ("bob", "key")
    assert (b"authorization", b"Bearer key") in head.onward(UPSTREAM)


@pytest.mark.parametrize(
    "headers", [(), ((b"authorization", b"Bearer wrong"),), ((b"authorization", b"a" * 24),)]
)
def test_a_stranger_is_refused(headers: Any) -> None:
    assert refused(*headers, serve=CLOSED) == (401, "token_missing")


def test_no_secret_is_in_what_is_printed() -> None:
    head = of((b"authorization", b"Bearer key-of-mine"))
    assert head.credential == "key-of-mine"
    assert "key-of-mine" not in repr(head)


def test_a_session_has_a_name() -> None:
    assert of((b"x-ullage-session", b"mine")).session == "mine"
    assert of().session is None


@pytest.mark.parametrize("name", [b"", b"a" * 201, b"a\x07", b"a\xa0"])
def test_a_name_that_is_none_is_refused(name: bytes) -> None:
    assert refused((b"x-ullage-session", name)) == (400, "session_name")


def test_two_names_are_none() -> None:
    names = ((b"x-ullage-session", b"a"), (b"x-ullage-session", b"b"))
    assert refused(*names) == (400, "session_name")


# --- headers --------------------------------------------------------------------------------------


def test_the_credential_goes_on_in_the_headers_that_it_came_in() -> None:
    key = of((b"x-api-key", b"k")).onward(UPSTREAM)
    assert (b"x-api-key", b"k") in key
    assert not any(name == b"authorization" for name, _ in key)
    assert not any(name in (b"x-api-key", b"authorization") for name, _ in of().onward(UPSTREAM))


def test_azures_key_goes_on_and_keeps_conversations_apart() -> None:
    one, other = of((b"api-key", b"one")), of((b"api-key", b"other"))
    assert (b"api-key", b"one") in one.onward(UPSTREAM)
    assert (one.credential, other.credential) == ("one", "other")
    assert one.party != other.party


BOTH = ((b"authorization", b"Bearer gateway"), (b"x-api-key", b"k"))


def credentials(head: RequestHead, upstream: Upstream) -> dict[bytes, bytes]:
    names = (b"x-api-key", b"authorization")
    return {name: value for name, value in head.onward(upstream) if name in names}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_two_credentials_go_on_each_as_it_was_sent(path: str) -> None:
    head = of(*BOTH, path=path)
    assert credentials(head, UPSTREAM) == dict(BOTH)
    assert {head.credential, head.other} == {"gateway", "k"}
    other_key = of(BOTH[0], (b"x-api-key", b"another"), path=path)
    assert (head.credential, head.other) != (other_key.credential, other_key.other)


def test_an_authorization_of_another_scheme_goes_on_as_it_was_sent() -> None:
    basic = (b"authorization", b"Basic dTpw")
    assert credentials(of(basic), UPSTREAM) == dict([basic])


@pytest.mark.parametrize(
    ("path", "header", "value"),
    [
        ("/v1/chat/completions", b"authorization", b"Bearer the-operators"),
        ("/v1/messages", b"x-api-key", b"the-operators"),
        ("/v1/messages/count_tokens", b"x-api-key", b"the-operators"),
    ],
)
def test_the_operators_key_goes_into_the_header_that_the_route_reads(
    path: str, header: bytes, value: bytes
) -> None:
    for sent in ((), BOTH[:1], BOTH[1:]):
        head = of(*sent, path=path).knowing(KEYED)
        assert head.credential == "the-operators"
        assert credentials(head, KEYED) == {header: value}
    assert credentials(of(*BOTH, path=path), KEYED) == {**dict(BOTH), header: value}


def test_a_body_that_was_changed_gets_a_key_of_its_own() -> None:
    head = of((b"idempotency-key", b"k1"), (b"openai-beta", b"x=1"))
    assert (b"idempotency-key", b"k1") in head.onward(UPSTREAM)
    changed = dict(head.onward(UPSTREAM, changed=True))
    assert changed[b"idempotency-key"] not in (b"", b"k1")
    assert changed[b"openai-beta"] == b"x=1"


def test_only_listed_headers_come_back() -> None:
    headers = [
        (b"Content-Type", b"text/plain"),
        (b"Content-Length", b"3"),
        (b"X-RateLimit-Remaining", b"7"),
        (b"anthropic-organization-id", b"o"),
        (b"Set-Cookie", b"a=b"),
        (b"Location", b"http://evil.example"),
        (b"X-Ullage-Context", b"used=0"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Server", b"x"),
    ]
    kept = [b"content-type", b"content-length", b"x-ratelimit-remaining"]
    assert [name for name, _ in back(headers, 200, sized=True)] == [
        *kept,
        b"anthropic-organization-id",
    ]
    assert b"content-length" not in dict(back(headers, 200, sized=False))
    assert b"content-length" not in dict(back(headers, 204, sized=True))
    assert back([(b"X-Request-Id", b"a\x7fb"), (b"retry-after", b"\t3")], 200, sized=True) == [
        (b"retry-after", b"\t3")
    ]
