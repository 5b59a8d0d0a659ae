"""Files and environment become layers, in order, with the line of each key."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage import config
from ullage.core.errors import ConfigurationError
from ullage.core.settings import Configured


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
        '# mine\nbase_url = "http://project/v1"\n[context_windows]\n"qwen3:14b" = 8192\n'
    )
    found = load(tmp_path, ULLAGE_CONTEXT_WINDOWS='{"m": 4096}', ULLAGE_OFFLINE="true")
    assert found.settings.policy == "off"
    assert found.settings.base_url == "http://project/v1"
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


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "policy = ", "is not valid TOML"),
        ("a.json", "{", "is not valid JSON"),
        ("a.json", "[]", "must hold a table"),
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
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(tmp_path, ULLAGE_CONFIG=str(path))


def test_a_variable_that_is_no_json_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\$ULLAGE_OFFLINE is 'yes'"):
        load(tmp_path, ULLAGE_OFFLINE="yes")


def test_an_impossible_window_in_a_file_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ullage.toml").write_text("[context_windows]\nm = 0\n")
    assert dict(load(tmp_path).settings.context_windows) == {}
    assert len(caplog.records) == 1


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
    with pytest.raises(ConfigurationError, match=r"\$ULLAGE_LOG is 'loud'"):
        config.set_log_levels({"ULLAGE_LOG": "loud"})


def test_the_real_environment_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ULLAGE_CONFIG", raising=False)
    monkeypatch.setenv("ULLAGE_POLICY", "advisory")
    monkeypatch.chdir(tmp_path)
    assert config.load().settings.policy == "advisory"
