"""What a proxy may be told: first matches win, secrets stay secret, what cannot work is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.config.layers import Layer, toml_lines
from ullage.config.parse import parse
from ullage.config.serving import ModelRule, Serve, Upstream, loopback
from ullage.config.serving import read as serving
from ullage.config.values import make_configured
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError

LOCAL = Upstream("local", "http://127.0.0.1:8080")
NEW = Policy.auto_summary(new_session=True)
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
recall_tools = true
ttl_s = 60
max_body = 1000
max_messages = 10
max_n = 1
max_depth = 9
connect_s = 1
first_byte_s = 2.5
idle_s = 3
leave_s = 0
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
recall_tools = false
"""


def read(text: str, environment: Mapping[str, str] | None = None) -> Serve:
    """Read a file whose keys stand below `[serve]`."""
    return of_data(tomllib.loads(text), environment)


def of_data(
    data: Any, environment: Mapping[str, str] | None = None, line: int | None = None
) -> Serve:
    layer = Layer("serve.toml", {"serve": data}, {} if line is None else {("serve",): line})
    return serving(make_configured(parse([layer], environment or {})), store="sqlite:here.db")


def of(**fields: Any) -> dict[str, Any]:
    return {"upstreams": [{"name": "u", "base_url": "http://127.0.0.1:1"}], **fields}


def test_every_key_is_read():
    found = read(WHOLE, {"ALICE": TOKEN, "KEY": "sk-secret"})
    cloud = Upstream("cloud", "https://api.openai.com/v1/", "sk-secret", ("gpt-*", "o?-mini"))
    local = Upstream("local", "http://127.0.0.1:11434", server="ollama")
    assert found == Serve(
        upstreams=(cloud, local),
        rules=(
            ModelRule("gpt-*", "alice", Policy.advisory(), 9000, min_output=256),
            ModelRule(key="bob", observe=True, recall_tools=False),
        ),
        usage="passive",
        fail_open=False,
        host="0.0.0.0",
        port=0,
        hosts=("llm.example",),
        origins=("https://chat.example",),
        tokens={"alice": TOKEN, "bob": OTHER},
        store="memory:",
        store_transcripts=True,
        recall_tools=True,
        ttl_s=60,
        max_body=1000,
        max_messages=10,
        max_n=1,
        max_depth=9,
        connect_s=1,
        first_byte_s=2.5,
        idle_s=3,
        leave_s=0,
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
    assert found.rule("qwen3", "alice") == ModelRule(policy=Policy.ladder(), recall_tools=True)
    assert found.rule("gpt-4o", "bob").observe
    assert found.rule(None, None) == ModelRule(policy=Policy.ladder(), recall_tools=True)


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
        ({"tokens": {"a": "short"}}, "the token 'a' is no secret: give 16 or more"),
        ({"tokens": {"a": "with a space in the middle"}}, "the token 'a' is no secret"),
        ({"tokens": {"a b": TOKEN}}, "'a b' cannot name a token"),
        ({"tokens": {"a": TOKEN, "b": TOKEN}}, "two tokens are the same"),
        ({"rules": (ModelRule(key="eve"),)}, "the unknown key 'eve': no tokens are set"),
        (
            {"rules": (ModelRule(key="alise"),), "tokens": {"alice": TOKEN}},
            "unknown key 'alise': did you mean 'alice'",
        ),
        ({"rules": (ModelRule(key="x"),), "tokens": {"alice": TOKEN}}, "there are alice"),
    ],
)
def test_what_cannot_work_together_is_refused(fields: dict[str, Any], why: str):
    with pytest.raises(ConfigurationError, match=why) as caught:
        Serve(**{"upstreams": (LOCAL,), **fields})
    assert "sentinel" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Upstream("-u", "http://h"), "'-u' cannot name an upstream"),
        (lambda: Upstream("u", "http://h", ""), "api_key of the upstream 'u' cannot be sent"),
        (lambda: Upstream("u", "http://h", "sentinel\nx"), "cannot be sent in a header"),
        (lambda: Upstream("u", "http://h", models=()), "serves no model"),
        (lambda: Upstream("u", "http://h", models=("",)), "serves no model"),
        (lambda: ModelRule(policy=Policy.auto_summary(new_session=True)), "wants new sessions"),
        (lambda: Upstream("u", "http://h", policy=NEW), "wants new sessions"),
        (lambda: Serve((LOCAL,), policy=NEW), "wants new sessions"),
    ],
)
def test_a_part_that_cannot_be_is_refused(make: Any, why: str):
    with pytest.raises(ConfigurationError, match=why) as caught:
        make()
    assert "sentinel" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (of(prot=1), r"unknown setting 'serve\.prot'; did you mean 'port'"),
        (of(zzz=1), r"unknown setting 'serve\.zzz'; there are upstreams, rules"),
        (of(upstreams=[{"nam": "x"}]), r"'serve\.upstreams\[0\]\.nam'; did you mean 'name'"),
        (of(rules=[{}, {"modle": "x"}]), r"'serve\.rules\[1\]\.modle'; did you mean 'model'"),
        (of(rules=[{"policy": "ladders"}]), "policy is 'ladders', expected .* mean 'ladder'"),
        (of(rules=[{"policy": {"tail_share": 2}}]), r"rules\[0\].policy.tail_share is 2, expec"),
        (of(rules=[{"policy": {"name": "off"}}]), "policy.name is 'off', the name of a preset"),
        (of(rules=[{"policy": {"new_session": True}}]), "wants new sessions"),
        (of(rules=[{"min_output": 0}]), "expected a whole number of 1 or more"),
        (of(rules=[{"model": ""}]), r"rules\[0\].model is '', expected text"),
        (of(rules=[{"window": 0}]), r"rules\[0\].window is 0, expected a whole number of 1"),
        (of(rules=[{"window": "8k"}]), "window is '8k', expected a whole number of 1 or more"),
        (of(rules=[{"observe": 1}]), "observe is 1, expected true or false"),
        (of(upstreams=[{"name": "u"}]), r"serve.upstreams\[0\] needs base_url: write it into"),
        (of(upstreams=[{}]), "needs name and base_url: write them into"),
        (of(upstreams={"name": "u"}), r"write \[\[serve.upstreams\]\]"),
        (of(upstreams="http://h"), "expected a list of tables"),
        (of(upstreams=["http://h"]), r"upstreams\[0\] is 'http://h', expected a table"),
        (of(upstreams=[{"name": "-", "base_url": "http://h"}]), "'-' cannot name an upstream"),
        (of(upstreams=[{"name": "u", "base_url": "h"}]), "no plain http or https URL"),
        (of(upstreams=[{"name": "u", "base_url": "http://h", "models": []}]), "serves no model"),
        (of(usage="count"), "serve.usage is 'count', expected one of inject, passive"),
        (of(port="8790"), "port is '8790', expected a whole number from 0 to 65,535"),
        (of(port=True), "port is True, expected a whole number"),
        (of(port=70_000), "port is 70000, expected a whole number from 0 to 65,535"),
        (of(max_body=0), "max_body is 0, expected a whole number of 1 or more"),
        (of(max_n=True), "max_n is True, expected"),
        (of(num_ctx=0), "num_ctx is 0, expected"),
        (of(ttl_s=0), "ttl_s is 0, expected a number above 0"),
        (of(ttl_s="7d"), "ttl_s is '7d', expected a number above 0"),
        (of(ttl_s=True), "ttl_s is True, expected a number above 0"),
        (of(idle_s=float("inf")), "idle_s is inf"),
        (of(drain_s=float("nan")), "drain_s is nan"),
        (of(host=""), "host is '', expected text"),
        (of(hosts="h"), "hosts is 'h', expected a list of texts"),
        (of(hosts=[1]), r"hosts\[0\] is 1, expected text"),
        (of(tokens=["sentinel"]), "tokens is a list, expected a table of names"),
        (of(tokens={"a": 5}), "tokens.a is a int, expected text"),
        (of(tokens={"a": "$NOT_SET"}), "that variable is not set"),
        (of(tokens={"a": "sentinel"}), "the token 'a' is no secret: give 16 or more"),
        (of(host="0.0.0.0"), "no token is set"),
        (of(rules=[{"key": "eve"}]), "a rule names the unknown key 'eve': no tokens are set"),
        (of(upstreams=of()["upstreams"] * 2), "two upstreams are named 'u'"),
        ([], "serve is a list, expected a table"),
    ],
)
def test_a_refusal_names_file_line_and_fix(data: Any, why: str):
    with pytest.raises(ConfigurationError, match=why) as caught:
        of_data(data, line=7)
    assert str(caught.value).startswith("serve.toml, line 7: ")
    assert "sentinel" not in str(caught.value)


def test_a_proxy_without_a_file_names_no_file():
    with pytest.raises(ConfigurationError, match=r"^ullage serve: no upstream is named"):
        serving(make_configured(parse([], {})), store="memory:")


def test_a_policy_is_the_rules_else_the_upstreams_else_that_of_the_settings():
    text = """
    [policy]
    preset = "advisory"
    tail_share = 0.5

    [[serve.upstreams]]
    name = "cloud"
    base_url = "https://api.openai.com"
    models = ["gpt-*"]
    policy = "off"

    [[serve.upstreams]]
    name = "local"
    base_url = "http://127.0.0.1:11434"

    [[serve.rules]]
    model = "gpt-4*"
    policy = { preset = "auto_summary", keep_last = 3 }

    [[serve.rules]]
    model = "qwen*"
    min_output = 99
    """
    layer = Layer("f.toml", tomllib.loads(text), toml_lines(text))
    found = serving(make_configured(parse([layer], {})), store="memory:")
    mine = replace(Policy.advisory(), tail_share=0.5)
    assert found.rule("gpt-4o", None).policy == replace(Policy.auto_summary(), keep_last=3)
    assert found.rule("gpt-3", None).policy == Policy.off()
    assert found.rule("llama", None).policy == mine
    assert found.rule("qwen3", None).policy == replace(mine, min_output=99)


def test_a_secret_may_begin_with_a_dollar_sign_that_names_no_variable():
    (upstream,) = of_data(
        of(upstreams=[{"name": "u", "base_url": "http://h", "api_key": "$1-x"}])
    ).upstreams
    assert upstream.api_key == "$1-x"


def test_a_rule_has_the_last_word_on_the_tools_that_are_added():
    rules = [{"model": "a", "recall_tools": False}, {"model": "b", "recall_tools": True}, {}]
    on, off = of_data(of(rules=rules, recall_tools=True)), of_data(of(rules=rules))
    assert [on.rule(model, None).recall_tools for model in "abc"] == [False, True, True]
    assert [off.rule(model, None).recall_tools for model in "abc"] == [False, True, None]
