"""Layers of settings: the last one wins, unknown keys are refused with the nearest."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.errors import ConfigurationError
from ullage.core.settings import KEYS, Layer, Settings, parse


def test_without_layers_the_defaults_hold() -> None:
    found = parse([])
    assert found.settings == Settings()
    assert set(found.origins.values()) == {"default"}
    assert set(found.origins) == set(KEYS)


def test_the_last_layer_wins_key_by_key_and_maps_are_merged() -> None:
    user = Layer(
        "user.toml",
        {"policy": "off", "offline": True, "context_windows": {"a": 1000, "b": 2000}},
        {"policy": 3},
    )
    project = Layer("project.toml", {"policy": "advisory", "context_windows": {"b": 3000}})
    found = parse([user, project])
    assert found.settings.policy == "advisory"
    assert found.settings.offline is True
    assert dict(found.settings.context_windows) == {"a": 1000, "b": 3000}
    assert found.origins["policy"] == "project.toml"
    assert found.origins["offline"] == "user.toml"
    assert parse([user]).origins["policy"] == "user.toml, line 3"


def test_an_unknown_key_is_refused_with_place_and_nearest_key() -> None:
    with pytest.raises(ConfigurationError, match=r"f\.toml, line 7: .*did you mean 'base_url'"):
        parse([Layer("f.toml", {"baseurl": "x"}, {"baseurl": 7})])
    with pytest.raises(ConfigurationError, match="valid keys: context_windows"):
        parse([Layer("f.toml", {"zzz": 1})])


@pytest.mark.parametrize("tokens", [0, -5, True, "8k", 1.5, None])
def test_an_impossible_window_is_left_out_with_a_warning(tokens: Any) -> None:
    found = parse([Layer("f.toml", {"context_windows": {"m": tokens, "n": 4096}})])
    assert dict(found.settings.context_windows) == {"n": 4096}
    assert "context_windows['m']" in found.warnings[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("context_windows", 4096),
        ("context_windows", {1: 2}),
        ("base_models", {"deployment": ""}),
        ("base_models", ["x"]),
        ("base_url", ""),
        ("base_url", 5),
        ("policy", "ladders"),
        ("offline", "yes"),
        ("connect_timeout_s", 0),
        ("read_timeout_s", True),
        ("read_timeout_s", "fast"),
        ("cache_dir", None),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"f\.toml"):
        parse([Layer("f.toml", {key: value})])


def test_good_values_are_taken() -> None:
    data = {
        "base_models": {"mine": "gpt-4o"},
        "base_url": "http://h/v1",
        "connect_timeout_s": 1,
        "read_timeout_s": 2.5,
        "cache_dir": "/c",
    }
    found = parse([Layer("f", data)]).settings
    assert (found.connect_timeout_s, found.read_timeout_s) == (1.0, 2.5)
    assert found.base_models["mine"] == "gpt-4o"
    with pytest.raises(TypeError):
        found.base_models["mine"] = "x"  # type: ignore[index]  # it is frozen
