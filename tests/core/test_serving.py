"""What a proxy may be told: first matches win, secrets stay secret, what cannot work is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError
from ullage.core.serving import DEFAULT, Rule, Serve, Upstream, loopback, parse

LOCAL = Upstream("local", "http://127.0.0.1:8080")
TOKEN = "sentinel-token-0123456789"
OTHER = "another-token-0123456789"
WHOLE = """
usage = "passive"
fail_open = false
host = "0.0.0.0"
port = 0
hosts = ["llm.example"]
origins = ["https://chat.example"]
store = "memory:"
store_transcripts = true
ttl_s = 60
max_body = 1000
max_messages = 10
max_n = 1
max_depth = 9
connect_s = 1
first_byte_s = 2.5
idle_s = 3
drain_s = 4
num_ctx = 8192

[tokens]
alice = "$ALICE"
bob = "another-token-0123456789"

[[upstreams]]
name = "cloud"
base_url = "https://api.openai.com/v1/"
api_key = "$KEY"
models = ["gpt-*", "o?-mini"]

[[upstreams]]
name = "local"
base_url = "http://127.0.0.1:11434"
server = "ollama"

[[rules]]
model = "gpt-*"
key = "alice"
policy = "advisory"
window = 9000
min_output = 256

[[rules]]
key = "bob"
observe = true
"""


def read(
    text: str,
    environment: Mapping[str, str] | None = None,
    lines: Mapping[str, int] | None = None,
) -> Serve:
    return parse(tomllib.loads(text), "serve.toml", environment or {}, lines or {})


def of(**fields: Any) -> dict[str, Any]:
    return {"upstreams": [{"name": "u", "base_url": "http://127.0.0.1:1"}], **fields}


def test_every_key_is_read():
    found = read(WHOLE, {"ALICE": TOKEN, "KEY": "sk-secret"})
    cloud = Upstream("cloud", "https://api.openai.com/v1/", "sk-secret", ("gpt-*", "o?-mini"))
    local = Upstream("local", "http://127.0.0.1:11434", server="ollama")
    advisory = Policy(name="advisory", rungs=Policy.advisory().rungs, min_output=256)
    assert found == Serve(
        upstreams=(cloud, local),
        rules=(Rule("gpt-*", "alice", advisory, 9000), Rule(key="bob", observe=True)),
        usage="passive",
        fail_open=False,
        host="0.0.0.0",
        port=0,
        hosts=("llm.example",),
        origins=("https://chat.example",),
        tokens={"alice": TOKEN, "bob": OTHER},
        store="memory:",
        store_transcripts=True,
        ttl_s=60,
        max_body=1000,
        max_messages=10,
        max_n=1,
        max_depth=9,
        connect_s=1,
        first_byte_s=2.5,
        idle_s=3,
        drain_s=4,
        num_ctx=8192,
    )


def test_the_first_upstream_that_serves_a_model_takes_it():
    found = read(WHOLE, {"ALICE": TOKEN, "KEY": "k"})
    names = {
        model: upstream.name if (upstream := found.upstream(model)) else None
        for model in ("gpt-4o", "o3-mini", "o33-mini", "GPT-4o", "qwen3:8b", None)
    }
    assert names == {
        "gpt-4o": "cloud",
        "o3-mini": "cloud",
        "o33-mini": "local",
        "GPT-4o": "local",
        "qwen3:8b": "local",
        None: "local",
    }


def test_a_model_that_nobody_serves_has_no_upstream():
    only = Serve((Upstream("u", "http://127.0.0.1:1", models=("gpt-*",)),))
    assert only.upstream("qwen3") is None
    assert only.upstream(None) is None
    assert only.upstream("gpt-" + "4" * 1_000_000) is None


@pytest.mark.parametrize("name", ["claude[1m]", "a.b", "x(y", "new\nline", "[!a]"])
def test_what_is_special_in_patterns_stands_for_itself(name: str):
    assert Upstream("u", "http://h", models=(name,)).serves(name)
    assert not Upstream("u", "http://h", models=(name,)).serves(name + "z")
    assert Upstream("u", "http://h", models=(f"{name}*",)).serves(name + "z")


@given(st.text(max_size=50))
def test_a_star_covers_every_model(model: str):
    assert Upstream("u", "http://h", models=("*",)).serves(model)
    assert Upstream("u", "http://h", models=("**",)).serves(model)


def test_the_first_rule_that_holds_wins_and_the_default_is_the_ladder():
    found = read(WHOLE, {"ALICE": TOKEN, "KEY": "k"})
    assert found.rule("gpt-4o", "alice").window == 9000
    assert found.rule("qwen3", "alice") is DEFAULT
    assert found.rule("gpt-4o", "bob").observe
    assert found.rule(None, None) is DEFAULT
    assert Rule(policy=Policy.ladder()) == DEFAULT


@pytest.mark.parametrize(
    ("base_url", "root"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api"),
        ("https://h/xv1", "https://h/xv1"),
    ],
)
def test_a_base_url_that_ends_in_v1_counts_as_its_root(base_url: str, root: str):
    assert Upstream("u", base_url).root == root


@pytest.mark.parametrize(
    "base_url",
    [
        *(
            "",
            "127.0.0.1:8080",
            "ftp://h",
            "http://",
            "http://h:99999",
            "http://h?x=1",
            "http://h#x",
        ),
        *(
            "http://user:pass@h",
            "http://h/a b",
            "http://h\r\nX: y",
            "file:///etc/passwd",
            "http://[::1",
        ),
    ],
)
def test_a_base_url_must_be_plain(base_url: str):
    with pytest.raises(ConfigurationError, match="no plain http or https URL") as caught:
        Upstream("u", base_url)
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True)),
        *(("localhost", True), ("LOCALHOST", True), ("0.0.0.0", False), ("::", False)),
        *(("192.168.1.5", False), ("localhost.example", False), ("", False)),
    ],
)
def test_only_loopback_needs_no_token(host: str, alone: bool):
    assert loopback(host) is alone
    if alone:
        assert Serve((LOCAL,), host=host).host == host
    else:
        with pytest.raises(ConfigurationError, match="no token is set"):
            Serve((LOCAL,), host=host)
    assert Serve((LOCAL,), host=host, tokens={"a": TOKEN}).tokens == {"a": TOKEN}


def test_secrets_are_in_no_representation():
    shown = repr(Serve((Upstream("u", "http://h", "sentinel-key"),), tokens={"a": TOKEN}))
    assert "sentinel" not in shown
    assert isinstance(hash(Serve((LOCAL,))), int)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"upstreams": ()}, "no upstream is named: give --upstream URL"),
        ({"upstreams": (LOCAL, LOCAL)}, "two upstreams are named 'local'"),
        ({"usage": "count"}, "valid are inject, passive"),
        ({"port": 70_000}, "port is 70000: a whole number of 0 or more and at most 65,535"),
        ({"max_body": 0}, "max_body is 0: a whole number of 1 or more"),
        ({"max_n": True}, "max_n is True"),
        ({"num_ctx": 0}, "num_ctx is 0"),
        ({"ttl_s": 0}, "ttl_s is 0: seconds above 0"),
        ({"idle_s": float("inf")}, "idle_s is inf"),
        ({"drain_s": float("nan")}, "drain_s is nan"),
        ({"tokens": {"a": "short"}}, "the token 'a' is no secret: give 16 or more"),
        ({"tokens": {"a": "with a space in the middle"}}, "the token 'a' is no secret"),
        ({"tokens": {"a b": TOKEN}}, "'a b' is no name of a token"),
        ({"tokens": {"a": TOKEN, "b": TOKEN}}, "two tokens are the same"),
        ({"rules": (Rule(key="eve"),)}, "the key 'eve', and there is no such token: there is none"),
        (
            {"rules": (Rule(key="alise"),), "tokens": {"alice": TOKEN}},
            "no such token: did you mean 'alice'",
        ),
        ({"rules": (Rule(key="x"),), "tokens": {"alice": TOKEN}}, "there are alice"),
    ],
)
def test_what_cannot_work_together_is_refused(fields: dict[str, Any], why: str):
    with pytest.raises(ConfigurationError, match=why) as caught:
        Serve(**{"upstreams": (LOCAL,), **fields})
    assert "sentinel" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Upstream("-u", "http://h"), "'-u' is no name of an upstream"),
        (lambda: Upstream("u", "http://h", ""), "api_key of the upstream 'u' cannot stand"),
        (lambda: Upstream("u", "http://h", "sentinel\nx"), "cannot stand in a header"),
        (lambda: Upstream("u", "http://h", models=()), "serves no model"),
        (lambda: Upstream("u", "http://h", models=("",)), "serves no model"),
        (lambda: Rule(""), "model of a rule is empty"),
        (lambda: Rule(window=0), "window of a rule is 0"),
        (lambda: Rule(policy=Policy.auto_summary(new_session=True)), "wants new sessions"),
    ],
)
def test_a_part_that_cannot_be_is_refused(make: Any, why: str):
    with pytest.raises(ConfigurationError, match=why) as caught:
        make()
    assert "sentinel" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "path", "why"),
    [
        (of(prot=1), "prot", "unknown key 'prot': did you mean 'port'"),
        (of(zzz=1), "zzz", "unknown key 'zzz': there are upstreams, rules"),
        (of(upstreams=[{"nam": "x"}]), "upstreams.0.nam", "did you mean 'name'"),
        (of(rules=[{}, {"modle": "x"}]), "rules.1.modle", "did you mean 'model'"),
        (of(rules=[{"policy": "ladders"}]), "rules.0.policy", "no policy is named 'ladders'"),
        (of(rules=[{"min_output": 0}]), "rules.0.min_output", "give 1 or more"),
        (of(rules=[{"window": 0}]), "rules.0", "window of a rule is 0"),
        (of(rules=[{"window": "8k"}]), "rules.0.window", "must be a whole number, not '8k'"),
        (of(rules=[{"observe": 1}]), "rules.0.observe", "must be true or false"),
        (of(upstreams=[{"name": "u"}]), "upstreams.0", "upstreams.0 needs base_url"),
        (of(upstreams=[{}]), "upstreams.0", "needs name and base_url"),
        (of(upstreams={"name": "u"}), "upstreams", r"write \[\[serve.upstreams\]\]"),
        (of(upstreams="http://h"), "upstreams", "must be a list of tables"),
        (of(upstreams=["http://h"]), "upstreams.0", "upstreams.0 must be a table, not a str"),
        (of(port="8790"), "port", "port must be a whole number"),
        (of(port=True), "port", "port must be a whole number"),
        (of(ttl_s="7d"), "ttl_s", "must be a number of seconds"),
        (of(ttl_s=True), "ttl_s", "must be a number of seconds"),
        (of(host=""), "host", "host must be text, not an empty str"),
        (of(hosts="h"), "hosts", "must be a list of texts"),
        (of(hosts=[1]), "hosts", "must be text"),
        (of(tokens=["sentinel"]), "tokens", "a table of names and tokens"),
        (of(tokens={"a": 5}), "tokens.a", "tokens.a must be text"),
        (of(tokens={"a": "$NOT_SET"}), "tokens.a", "that variable is not set"),
        (of(port=70_000), "", "port is 70000"),
    ],
)
def test_a_refusal_names_file_line_and_fix(data: dict[str, Any], path: str, why: str):
    with pytest.raises(ConfigurationError, match=why) as caught:
        parse(data, "serve.toml", {}, {path: 7})
    assert str(caught.value).startswith("serve.toml, line 7: ")
    assert "sentinel" not in str(caught.value)


def test_without_a_line_the_file_alone_is_named():
    with pytest.raises(ConfigurationError, match=r"^serve\.toml: no upstream is named"):
        parse({}, "serve.toml", {})
    with pytest.raises(ConfigurationError, match=r"^f: serve must be a table, not a list"):
        parse([], "f", {})  # type: ignore[arg-type]  # as a file may have it


def test_a_secret_may_begin_with_a_dollar_sign_that_names_no_variable():
    (upstream,) = parse(
        of(upstreams=[{"name": "u", "base_url": "http://h", "api_key": "$1-x"}]), "f", {}
    ).upstreams
    assert upstream.api_key == "$1-x"
