"""One parser for all layers: the last one wins, and what cannot be is refused with its place."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from ullage.config.expected import describe
from ullage.config.layers import Layer, Word, json_lines, spell, toml_lines
from ullage.config.parse import parse, paths
from ullage.config.schema import (
    PolicyTable,
    RuleTable,
    RungTable,
    ServeTable,
    SettingsTable,
    SharesTable,
    SummarizerTable,
    ThresholdsTable,
    UpstreamTable,
)
from ullage.config.serving import ModelRule, Serve, Upstream
from ullage.config.settings import KEYS, Configured, Settings, SummarizerSettings
from ullage.config.values import make_configured
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.budget import SHARES
from ullage.core.tokens.gauge import Thresholds

RUNG = {"at": 0.8, "target": 0.5, "strategies": ["clear", "trim_oldest"]}


def read(*layers: Layer, environment: dict[str, str] | None = None) -> Configured:
    return make_configured(parse(layers, environment or {}))


def of(data: dict[str, Any]) -> Settings:
    return read(Layer("f.toml", data)).settings


def test_without_layers_the_defaults_hold() -> None:
    found = read()
    assert found.settings == Settings() == Configured().settings
    assert found.origins == Configured().origins
    assert set(found.origins.values()) == {"default"}
    assert set(found.origins) == set(KEYS)


def test_the_last_layer_wins_key_by_key_and_maps_are_merged() -> None:
    user = Layer(
        "user.toml",
        {"policy": "off", "offline": True, "context_windows": {"a": 1000, "b": 2000}},
        {("policy",): 3},
    )
    project = Layer("project.toml", {"policy": "advisory", "context_windows": {"b": 3000}})
    found = read(user, project)
    assert found.settings.policy == Policy.advisory()
    assert found.settings.offline is True
    assert dict(found.settings.context_windows) == {"a": 1000, "b": 3000}
    assert found.origins["policy"] == "project.toml"
    assert found.origins["offline"] == "user.toml"
    assert read(user).origins["policy"] == "user.toml, line 3"


# ── policies, shares, pins, a summarizer ────────────────────────────────────────────────────────


def test_a_policy_is_its_preset_with_what_else_is_set() -> None:
    assert of({"policy": {"preset": "advisory"}}).policy == Policy.advisory()
    assert of({"policy": {}}).policy == Policy.ladder()
    found = of(
        {
            "policy": {
                "preset": "auto_summary",
                "name": "mine",
                "version": "2",
                "thresholds": {"warning": 0.5},
                "rungs": [RUNG],
                "tail_tokens": 0,
                "tail_share": 1,
                "keep_last": 3,
                "min_output": 64,
                "carry_share": 0,
                "results": {"read": "once"},
                "recovery_tails": [5, 1],
                "background": True,
                "new_session": True,
            }
        }
    ).policy
    assert found == Policy(
        name="mine",
        version="2",
        thresholds=Thresholds(None, 0.5, 0.95),
        rungs=(Rung(0.8, 0.5, ("clear", "trim_oldest")),),
        tail_tokens=0,
        tail_share=1.0,
        keep_last=3,
        min_output=64,
        carry_share=0.0,
        results={"read": "once"},
        recovery_tails=(5, 1),
        background=True,
        new_session=True,
    )


def test_a_tier_can_be_left_out() -> None:
    found = of({"policy": {"thresholds": {"advisory": "off"}}}).policy
    assert isinstance(found, Policy)
    assert found.thresholds == Thresholds(advisory=None)


def test_tables_of_a_policy_are_merged_and_a_name_alone_takes_their_place() -> None:
    user = Layer("user.toml", {"policy": {"tail_share": 0.5, "thresholds": {"warning": 0.75}}})
    more = Layer("ullage.toml", {"policy": {"thresholds": {"critical": 0.85}}})
    found = read(user, more).settings.policy
    assert isinstance(found, Policy)
    assert (found.tail_share, found.thresholds) == (0.5, Thresholds(0.7, 0.75, 0.85))
    named = Layer("$ULLAGE_POLICY", {"policy": Word("off")})
    assert read(user, more, named).settings.policy == Policy.off()
    changed = Layer("$ULLAGE_POLICY__KEEP_LAST", {"policy": {"keep_last": Word("4")}})
    assert read(user, named, changed).settings.policy == dataclasses.replace(
        Policy.off(), keep_last=4
    )


def test_shares_pins_and_a_summarizer_are_read() -> None:
    found = of(
        {
            "base_url": "http://h/v1",
            "shares": dict(SHARES),
            "pins": [0, 3],
            "summarizer": {"model": "small", "api_key": "sentinel", "timeout_s": 5},
        }
    )
    assert found.shares == SHARES
    assert found.pins == (0, 3)
    wanted = SummarizerSettings("small", "http://h/v1", api_key="sentinel", timeout_s=5.0)
    assert found.summarizer == wanted
    assert "sentinel" not in repr(found)


def test_settings_that_were_read_can_be_pickled() -> None:
    found = of({"context_windows": {"m": 1}, "shares": dict(SHARES), "policy": {"keep_last": 2}})
    assert pickle.loads(pickle.dumps(found)) == found


def test_good_values_are_taken() -> None:
    data = {
        "base_models": {"mine": "gpt-4o"},
        "base_url": "http://h/v1",
        "connect_timeout_s": 1,
        "read_timeout_s": 2.5,
        "cache_dir": "/c",
    }
    found = of(data)
    assert (found.connect_timeout_s, found.read_timeout_s) == (1.0, 2.5)
    assert found.base_models["mine"] == "gpt-4o"
    with pytest.raises(TypeError):
        found.base_models["mine"] = "x"  # type: ignore[index]  # it is frozen


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("offline", "true", True),
        ("read_timeout_s", "5", 5.0),
        ("base_url", "5", "5"),
        ("pins", "[0, 1]", (0, 1)),
        ("context_windows", '{"m": 4096}', {"m": 4096}),
    ],
)
def test_a_text_of_the_environment_stands_for_what_its_setting_takes(
    path: str, text: str, value: Any
) -> None:
    assert getattr(of({path: Word(text)}), path) == value


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


def test_an_unknown_key_is_refused_with_place_and_nearest_key() -> None:
    with pytest.raises(ConfigurationError, match=r"f\.toml, line 7: .*did you mean 'base_url'"):
        read(Layer("f.toml", {"baseurl": "x"}, {("baseurl",): 7}))
    with pytest.raises(ConfigurationError, match="there are base_url, policy"):
        of({"zzz": 1})
    with pytest.raises(ConfigurationError, match=r"'port'; did you mean 'serve\.port'\?"):
        of({"port": 1})


@pytest.mark.parametrize("tokens", [0, -5, True, "8k", 1.5, None])
def test_an_impossible_window_is_left_out_with_a_warning(tokens: Any) -> None:
    found = read(Layer("f.toml", {"context_windows": {"m": tokens, "n": 4096}}))
    assert dict(found.settings.context_windows) == {"n": 4096}
    assert "f.toml: context_windows.m is" in found.warnings[0]


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"offline": "yes"}, "offline is 'yes', expected true or false"),
    ({"offline": 1}, "offline is 1, expected true or false"),
    ({"connect_timeout_s": 0}, "connect_timeout_s is 0, expected a number above 0"),
    ({"read_timeout_s": True}, "read_timeout_s is True, expected a number above 0"),
    ({"read_timeout_s": "fast"}, "read_timeout_s is 'fast', expected a number above 0"),
    ({"read_timeout_s": float("inf")}, "read_timeout_s is inf"),
    ({"read_timeout_s": float("nan")}, "read_timeout_s is nan"),
    ({"cache_dir": 5}, "cache_dir is 5, expected text"),
    ({"pins": 3}, "pins is 3, expected a list of whole numbers of 0 or more"),
    ({"pins": [0, -1]}, r"pins\[1\] is -1, expected a whole number of 0 or more"),
    ({"shares": {"tools": 0.5}}, "f.toml: shares name the sections .*missing: conversation"),
    ({"shares": dict(SHARES) | {"tools": 0.9}}, "f.toml: the shares add up to 1.7"),
    ({"shares": {"tols": 0.5}}, r"unknown setting 'shares\.tols'; did you mean 'tools'"),
    ({"summarizer": {"base_url": "http://h"}}, "f.toml: summarizer needs model"),
    ({"summarizer": {"model": "m"}}, "f.toml: summarizer needs base_url"),
    ({"summarizer": {"dialect": "ollama"}}, "dialect is 'ollama', expected one of openai_chat"),
    (
        {"serve": {"port": 70_000}},
        "serve.port is 70000, expected a whole number from 0 to 65,5",
    ),
]
POLICIES: list[tuple[dict[str, Any], str]] = [
    ({"context_windows": 4096}, "context_windows is 4096, expected a table of names, each"),
    ({"context_windows": {1: 2}}, "context_windows is a dict, expected a table of names"),
    ({"base_models": {"deployment": ""}}, "base_models.deployment is '', expected text"),
    ({"base_models": ["x"]}, "base_models is a list, expected a table of names"),
    ({"base_url": ""}, "base_url is '', expected text"),
    ({"base_url": 5}, "base_url is 5, expected text"),
    ({"policy": "ladders"}, "policy is 'ladders', expected one of .*; did you mean 'ladder'"),
    ({"policy": "zzz"}, "policy is 'zzz', expected one of ladder, advisory.*, client$"),
    ({"policy": 5}, "policy is 5, expected the name of a policy, or a table"),
    ({"policy": {"preset": 5}}, r"policy\.preset is 5, expected one of ladder"),
    ({"policy": {"tail": 5}}, r"unknown setting 'policy\.tail'; there are preset"),
    ({"policy": {"name": "off"}}, "policy.name is 'off', the name of a preset: write preset"),
    ({"policy": {"tail_share": 2}}, "policy.tail_share is 2, expected a number from 0 to 1"),
    ({"policy": {"carry_share": 1}}, "expected a number of 0 or more and below 1"),
    ({"policy": {"results": {"read": "onces"}}}, "policy.results.read is 'onces', expected"),
    ({"policy": {"recovery_tails": [1, 5]}}, "f.toml: recovery_tails of the policy 'ladder'"),
    ({"policy": {"recovery_tails": []}}, "recovery_tails is a list, expected a list of whole"),
    ({"policy": {"thresholds": {"warning": 0.99}}}, "f.toml: thresholds must rise"),
    ({"policy": {"thresholds": {"advisory": "no"}}}, "expected a number above 0, at most 1 or"),
    ({"policy": {"rungs": RUNG}}, r"policy.rungs is a dict, expected a list of tables; write"),
    ({"policy": {"rungs": [5]}}, r"policy.rungs\[0\] is 5, expected a table"),
    (
        {"policy": {"rungs": [{"at": 0.5}]}},
        r"rungs\[0\] needs target and strategies: write them",
    ),
    ({"policy": {"rungs": [{**RUNG, "at": 80}]}}, r"rungs\[0\].at is 80, expected a number"),
    ({"policy": {"rungs": [{**RUNG, "target": 0.9}]}}, "f.toml: a rung at 0.8 needs a target"),
    (
        {"policy": {"rungs": [RUNG, {**RUNG, "strategies": ["claer"]}]}},
        r"rungs\[1\].strategies\[0\] is 'claer', expected .*; did you mean 'clear'",
    ),
    ({"policy": {"rungs": [{**RUNG, "strategies": []}]}}, "strategies is a list, expected"),
]


@pytest.mark.parametrize(("data", "why"), [*OTHERS, *POLICIES])
def test_what_cannot_be_is_refused_with_place_key_value_and_what_is_expected(
    data: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        of(data)
    assert str(caught.value).startswith("f.toml: ")


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("offline", "yes", r"^\$X: offline is 'yes', expected true or false"),
        ("read_timeout_s", "fast", r"^\$X: read_timeout_s is 'fast', expected a number above 0"),
        ("pins", "0", r"^\$X: pins is 0, expected a list of whole numbers"),
        ("pins", "0,1", r"^\$X is no JSON \(.*\): write a list of whole .*, such as \[0, 1\]"),
        ("context_windows", "m=1", r"^\$X is no JSON .*, such as \{\"name\": 32768\}"),
        ("base_models", "m", r"^\$X is no JSON .*, such as \{\"name\": \"value\"\}"),
        ("policy", "lader", r"^\$X: policy is 'lader', expected .*; did you mean 'ladder'"),
        ("policy", "{x", r"^\$X is no JSON .*: write the name of a policy, or a table, such as"),
        ("summarizer", "sentinel", r"^\$X is no JSON .*, such as \{\"key\": \"value\"\}"),
        ("policy.rungs", "high", r"^\$X is no JSON .*, such as \[\{\"key\": \"value\"\}\]"),
        ("serve.hosts", "h", r"^\$X is no JSON .*, such as \[\"a\", \"b\"\]"),
    ],
)
def test_a_variable_that_cannot_be_is_named(path: str, text: str, why: str) -> None:
    data: Any = Word(text)
    for key in reversed(path.split(".")):
        data = {key: data}
    with pytest.raises(ConfigurationError, match=why) as caught:
        read(Layer("$X", data))
    assert "sentinel" not in str(caught.value)


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────


def test_a_secret_is_read_from_its_variable_and_is_in_no_error() -> None:
    data = {"base_url": "http://h", "summarizer": {"model": "m", "api_key": "$KEY"}}
    found = read(Layer("f", data), environment={"KEY": "sentinel"}).settings.summarizer
    assert isinstance(found, SummarizerSettings)
    assert found.api_key == "sentinel"
    with pytest.raises(ConfigurationError, match=r"api_key is \$KEY, and that variable is not set"):
        read(Layer("f", data))
    for wrong in (["sentinel"], {"a": "sentinel"}, 5, ""):
        with pytest.raises(ConfigurationError, match=r"api_key is an? .*, expected text") as caught:
            of({"summarizer": {"api_key": wrong}})
        assert "sentinel" not in str(caught.value)


def test_the_projects_file_reads_no_variables() -> None:
    data: dict[str, Any] = {
        "base_url": "http://[::1]:1",
        "summarizer": {"model": "m", "api_key": "$KEY"},
    }
    with pytest.raises(ConfigurationError, match="may not read variables"):
        read(Layer("ullage.toml", data, foreign=True), environment={"KEY": "sentinel"})
    data["summarizer"]["api_key"] = "their-own"
    found = read(Layer("ullage.toml", data, foreign=True)).settings.summarizer
    assert isinstance(found, SummarizerSettings)
    assert found.api_key == "their-own"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"serve": {"port": 1}}, "may not start a proxy.*: put serve into your own settings"),
        ({"retention_days": 0.1}, "may not erase sessions.*: put retention_days into"),
        ({"redact_keys": False}, "may not write keys to the log.*: put redact_keys into"),
        ({"cache_dir": "here"}, "may not move the cache folder.*: put cache_dir into"),
        (
            {"base_url": "https://h/v1"},
            "may not name a server beyond this machine.*: put base_url into",
        ),
        (
            {"base_url": "http://[::1"},
            "may not name a server beyond this machine.*: put base_url into",
        ),
        (
            {"base_url": "http://127.0.0.1@h"},
            "may not name a server beyond this machine.*: put base_url into",
        ),
        (
            {"store": "postgresql:///db?host=h"},
            "may not name a store other than sqlite.*: put store into",
        ),
        (
            {"store": "sqlite:\\\\h\\share\\x.db"},
            "may not name a store other than sqlite.*: put store into",
        ),
        (
            {"summarizer": {"model": "m", "base_url": "http://10.0.0.1"}},
            r"may not name a server beyond .*: put summarizer\.base_url into",
        ),
    ],
)
def test_the_projects_file_may_not_reach_beyond_the_project(data: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        read(Layer("ullage.toml", data, foreign=True))
    assert str(caught.value).startswith("ullage.toml")
    read(Layer("own.toml", {**data, "base_url": data.get("base_url", "http://h")}))


def test_the_projects_file_may_name_this_machine_and_files() -> None:
    data = {"base_url": "http://localhost:8080/v1", "store": "sqlite:ullage.db"}
    found = read(Layer("ullage.toml", data, foreign=True)).settings
    assert (found.base_url, found.store) == (data["base_url"], data["store"])
    more = {"redact_keys": True, "base_url": "http://host.docker.internal:1", "store": "memory:"}
    assert read(Layer("ullage.toml", more, foreign=True)).settings.redact_keys


# ── places ──────────────────────────────────────────────────────────────────────────────────────

TOML = """\
# a comment
offline = true
base_models = { "a" = "b" }
[ context_windows ]  # here
"qwen3:14b" = 1
"\\u0061b" = 2
not a key
policy.x = 3
"bad\\x = 1
[[serve.rules]]
model = "a"
[serve.rules.policy]
preset = "off"
[[serve.rules]]
key = "b"
[[serve.rules.policy.rungs]]
at = 0.5
"""


def test_lines_are_found_in_files_as_people_write_them() -> None:
    lines = {spell(path): line for path, line in toml_lines(TOML).items()}
    assert lines == {
        "offline": 2,
        "base_models": 3,
        "context_windows": 4,
        'context_windows."qwen3:14b"': 5,
        "context_windows.ab": 6,
        "context_windows.policy.x": 8,
        "serve.rules": 10,
        "serve.rules[0]": 10,
        "serve.rules[0].model": 11,
        "serve.rules[0].policy": 12,
        "serve.rules[0].policy.preset": 13,
        "serve.rules[1]": 14,
        "serve.rules[1].key": 15,
        "serve.rules[1].policy.rungs": 16,
        "serve.rules[1].policy.rungs[0]": 16,
        "serve.rules[1].policy.rungs[0].at": 17,
    }


def test_a_line_within_a_longer_text_does_no_harm() -> None:
    assert toml_lines('a = """\nb.b.c = 1\n"""\n')[("b", "b", "c")] == 2
    assert toml_lines('x = """\n"\\q" = 1\n"""\n')[('"\\q"',)] == 2


def test_lines_are_found_in_json() -> None:
    text = '{\n "a": {"b": 1,\n  "a": 2},\n "l": [{"a": 3},\n  {"a": 4}],\n "\\u0078": 5\n}'
    data = {"a": {"b": 1, "a": 2}, "l": [{"a": 3}, {"a": 4}], "x": 5}
    lines = {spell(path): line for path, line in json_lines(text, data).items()}
    assert lines == {"a": 2, "a.b": 2, "a.a": 3, "l": 4, "l[0].a": 4, "l[1].a": 5}


def test_a_place_is_the_nearest_line_that_is_known() -> None:
    layer = Layer("f.toml", {}, {("a",): 3, ("a", "b", 0): 5})
    assert layer.where(("a", "b", 0, "c")) == "f.toml, line 5"
    assert layer.where(("a", "x")) == "f.toml, line 3"
    assert layer.where(("z",)) == "f.toml"


@given(st.dictionaries(st.text(max_size=5), st.integers(1, 9), max_size=4))
def test_any_names_of_models_are_read_back(windows: dict[str, int]) -> None:
    assert dict(of({"context_windows": windows}).context_windows) == windows


# ── the schema ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("table", "value", "more"),
    [
        (SettingsTable, Settings, {"serve"}),
        (PolicyTable, Policy, {"preset"}),
        (ThresholdsTable, Thresholds, set()),
        (RungTable, Rung, set()),
        (SummarizerTable, SummarizerSettings, {"same"}),
        (UpstreamTable, Upstream, set()),
        (RuleTable, ModelRule, set()),
    ],
)
def test_the_schema_has_every_field_of_its_value(table: Any, value: Any, more: set[str]) -> None:
    """Whoever adds a field to a value adds it to the schema, or settings could not say it."""
    assert {f.name for f in fields(table)} == {
        f.name for f in dataclasses.fields(value) if f.compare
    } | more


def test_the_schema_has_every_field_of_the_proxy_and_every_share() -> None:
    assert {f.name for f in fields(ServeTable)} == {
        f.name
        for f in dataclasses.fields(Serve)
        if f.init and f.name not in ("policy", "summarizer")
    }
    assert {f.name for f in fields(SharesTable)} == set(SHARES)


def test_every_setting_can_be_described() -> None:
    assert len(list(paths())) > 50
    for table in (SettingsTable, PolicyTable, RungTable, ServeTable, UpstreamTable, RuleTable):
        assert all(describe(each.type) for each in fields(table))
