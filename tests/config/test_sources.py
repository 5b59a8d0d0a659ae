"""Files and environment become layers, in order, with the line of each key."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage import config
from ullage.config import Configured
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.gauge import Thresholds


def load(tmp_path: Path, **environment: str) -> Configured:
    return config.load({"ULLAGE_CONFIG": "", **environment}, tmp_path)


@pytest.fixture(autouse=True)
def no_user_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    home = tmp_path / "home"
    monkeypatch.setattr("platformdirs.user_config_dir", lambda *_, **__: str(home))
    return home


def test_nothing_set_gives_the_defaults(tmp_path: Path) -> None:
    assert set(load(tmp_path).origins.values()) == {"default"}


def test_the_environment_beats_the_project_beats_the_user(
    tmp_path: Path, no_user_file: Path
) -> None:
    no_user_file.mkdir()
    (no_user_file / "config.toml").write_text('policy = "off"\nbase_url = "http://user/v1"\n')
    (tmp_path / "ullage.toml").write_text(
        '# mine\nbase_url = "http://127.0.0.1:8080/v1"\n[context_windows]\n"qwen3:14b" = 8192\n'
    )
    found = load(tmp_path, ULLAGE_CONTEXT_WINDOWS='{"m": 4096}', ULLAGE_OFFLINE="true")
    assert found.settings.policy == Policy.off()
    assert found.settings.base_url == "http://127.0.0.1:8080/v1"
    assert dict(found.settings.context_windows) == {"qwen3:14b": 8192, "m": 4096}
    assert found.settings.offline is True
    assert found.origins["base_url"] == f"{tmp_path / 'ullage.toml'}, line 2"
    assert found.origins["offline"] == "$ULLAGE_OFFLINE"


def test_a_json_file_of_windows_is_read(tmp_path: Path, no_user_file: Path) -> None:
    no_user_file.mkdir()
    (no_user_file / "config.json").write_text('{"context_windows": {"model": 200000}}')
    found = load(tmp_path)
    assert found.settings.context_windows["model"] == 200_000
    assert found.origins["context_windows"].endswith("config.json, line 1")


def test_a_named_file_takes_the_users_place(tmp_path: Path, no_user_file: Path) -> None:
    no_user_file.mkdir()
    (no_user_file / "config.toml").write_text('policy = "off"\n')
    named = tmp_path / "other.toml"
    named.write_text("read_timeout_s = 5\n")
    found = load(tmp_path, ULLAGE_CONFIG=str(named))
    assert (found.settings.read_timeout_s, found.settings.policy) == (5.0, "ladder")


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="which is no file"):
        load(tmp_path, ULLAGE_CONFIG=str(tmp_path / "none.toml"))


@pytest.mark.parametrize("name", ["ullage.toml", "config.toml"])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("folder", "it is a folder; name a file, such as"),
        ("circle", "Too many levels of symbolic links; check"),
        ("nothing", "there is no such file; check its path"),
    ],
)
def test_settings_that_are_there_and_cannot_be_read_are_an_error(
    name: str, kind: str, said: str, tmp_path: Path, no_user_file: Path
) -> None:
    no_user_file.mkdir()
    path = (tmp_path if name == "ullage.toml" else no_user_file) / name
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if kind == "circle" else path.with_name("gone"))
    with pytest.raises(ConfigurationError, match=f"{name} cannot be read: .*{said}"):
        load(tmp_path)


def test_a_folder_of_settings_that_cannot_be_looked_into_is_an_error(
    tmp_path: Path, no_user_file: Path
) -> None:
    no_user_file.symlink_to(no_user_file)
    with pytest.raises(ConfigurationError, match=r"config\.toml cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "policy = ", "is not valid TOML"),
        ("a.json", "{", "is not valid JSON"),
        ("a.json", "[]", "must hold a table"),
        ("a.toml", "offline = true\noffline = false", "is not valid TOML: .*"),
        ("a.toml", "offline = true\nx y", r"is not valid TOML: .*\(at line 2, column"),
        ("a.json", '{"offline": true, "offline": false}', "the key 'offline' is there twice"),
        ("a.json", '{"offline": true,\n x}', r"is not valid JSON: .*line 2 column"),
        ("a.toml", '\n\npolcy = "off"', r"line 3: .*did you mean 'policy'"),
        ("a.toml", "[context_window]\nm = 1", r"line 1: .*did you mean 'context_windows'"),
    ],
)
def test_a_broken_file_is_named_with_its_fault(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        load(tmp_path, ULLAGE_CONFIG=str(path))


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"offline = true\n\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"a\.toml cannot be read: line 2 is not UTF-8"):
        load(tmp_path, ULLAGE_CONFIG=str(path))


def test_a_folder_in_the_place_of_a_named_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        config.load({"ULLAGE_CONFIG": ""}, tmp_path, named=tmp_path)


def test_a_variable_that_is_no_json_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"\$ULLAGE_OFFLINE: offline is 'yes', expected true or false"
    ):
        load(tmp_path, ULLAGE_OFFLINE="yes")


def test_an_impossible_window_in_a_file_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ullage.toml").write_text("[context_windows]\nm = 0\n")
    assert dict(load(tmp_path).settings.context_windows) == {}
    assert len(caplog.records) == 1


def test_a_variable_that_sets_nothing_is_one_warning_with_the_nearest_that_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = load(tmp_path, ULLAGE_POLCY="off", ULLAGE_XYZ="1", ULLAGE_LOG="debug", ULLAGE_="")
    assert [record.getMessage() for record in caplog.records] == [
        "$ULLAGE_POLCY is no setting and is ignored; did you mean 'ULLAGE_POLICY'?",
        "$ULLAGE_XYZ is no setting and is ignored",
    ]
    assert found.settings == Configured().settings


def test_a_nested_key_has_a_variable_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "ullage.toml").write_text("[policy]\ntail_share = 0.1\nkeep_last = 3\n")
    found = load(
        tmp_path,
        ULLAGE_POLICY__TAIL_SHARE="0.5",
        ULLAGE_POLICY__THRESHOLDS__WARNING="0.75",
        ULLAGE_POLICY__RUNGS='[{"at": 0.5, "target": 0.25, "strategies": ["clear"]}]',
    )
    assert found.settings.policy == Policy(
        tail_share=0.5,
        keep_last=3,
        thresholds=Thresholds(warning=0.75),
        rungs=(Rung(0.5, 0.25, ("clear",)),),
    )
    assert found.places["policy.tail_share"] == "$ULLAGE_POLICY__TAIL_SHARE"
    assert found.places["policy.keep_last"].endswith("ullage.toml, line 3")
    assert config.variable("policy.tail_share") == "ULLAGE_POLICY__TAIL_SHARE"


def test_variables_that_set_something_are_listed() -> None:
    environment = {"ULLAGE_POLICY": "off", "ULLAGE_CONFIG": "x", "ULLAGE_LOG": "debug", "HOME": "/"}
    assert config.variables({**environment, "ULLAGE_STORE": ""}) == [
        "ULLAGE_CONFIG",
        "ULLAGE_POLICY",
    ]


def test_options_win_over_all_and_their_lists_stand_before_the_others(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text(
        'policy = "off"\n[serve]\nport = 1\nhosts = ["b"]\n[[serve.upstreams]]\n'
        'name = "b"\nbase_url = "http://b"\n'
    )
    found = config.load(
        {"ULLAGE_SERVE__PORT": "2", "ULLAGE_CONFIG": ""},
        tmp_path,
        named=tmp_path / "serve.toml",
        options=[
            ("--port", "serve.port", 3),
            ("--host", "serve.host", None),
            ("--policy", "policy", "advisory"),
            ("--upstream", "serve.upstreams", [{"name": "a", "base_url": "http://a"}]),
        ],
    )
    assert found.settings.policy == Policy.advisory()
    assert found.tree["serve"]["port"] == 3
    assert [one["name"] for one in found.tree["serve"]["upstreams"]] == ["a", "b"]
    assert "host" not in found.tree["serve"]
    assert found.origins["policy"] == "--policy"
    with pytest.raises(ConfigurationError, match=r"^--port: serve\.port is 70000, expected"):
        config.load({}, tmp_path, options=[("--port", "serve.port", 70_000)])


def test_values_set_by_hand_hold_within_their_block(tmp_path: Path) -> None:
    with config.given_options(["policy.tail_share=0.5", "pins=[1]", "policy=off"]):
        found = load(tmp_path)
        assert found.settings.pins == (1,)
        assert found.settings.policy == Policy.off()
        assert found.places["policy"] == "--set policy"
    assert load(tmp_path).settings == Configured().settings
    for wrong in ("policy", "=5", ""):
        with (
            pytest.raises(ConfigurationError, match="names no value: write --set KEY=VALUE"),
            config.given_options([wrong]),
        ):
            pass
    with (
        config.given_options(["polcy=off"]),
        pytest.raises(ConfigurationError, match=r"--set polcy: .* did you mean 'policy'"),
    ):
        load(tmp_path)


def test_the_projects_file_named_by_hand_is_yours(tmp_path: Path) -> None:
    project = tmp_path / "ullage.toml"
    project.write_text("[serve]\nport = 5\n")
    with pytest.raises(ConfigurationError, match="the project's file may not start a proxy"):
        load(tmp_path)
    assert load(tmp_path, ULLAGE_CONFIG=str(project)).tree["serve"]["port"] == 5
    named = config.load({"ULLAGE_CONFIG": ""}, tmp_path, named=project)
    assert named.tree["serve"]["port"] == 5


def test_without_anything_set_nothing_is_loaded_that_an_import_would_pay_for() -> None:
    code = (
        "import sys, ullage; ullage.Guard('gpt-4o'); "
        "print([m for m in ('msgspec', 'tomllib') if m in sys.modules])"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ULLAGE_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "[]\n"


@pytest.fixture
def levels() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("ullage", "ullage.windows")]
    held = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, held, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("levels")
def test_log_levels_come_for_all_and_for_one_room() -> None:
    config.set_log_levels({"ULLAGE_LOG": "error", "ULLAGE_LOG_WINDOWS": "debug", "ULLAGE_X": "y"})
    assert logging.getLogger("ullage").level == logging.ERROR
    assert logging.getLogger("ullage.windows").level == logging.DEBUG


def test_a_word_that_is_no_level_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"\$ULLAGE_LOG is 'loud', expected one of debug"):
        config.set_log_levels({"ULLAGE_LOG": "loud"})
    with pytest.raises(ConfigurationError, match="did you mean 'debug'"):
        config.set_log_levels({"ULLAGE_LOG": "debg"})


def test_the_real_environment_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ULLAGE_CONFIG", raising=False)
    monkeypatch.setenv("ULLAGE_POLICY", "advisory")
    monkeypatch.chdir(tmp_path)
    assert config.load().settings.policy == Policy.advisory()
