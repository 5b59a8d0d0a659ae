"""`ullage config show`: every setting with its place, as TOML that can be read back."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from tools import settings_page
from ullage import config
from ullage.cli.main import main, parser
from ullage.config.schema import Table
from ullage.config.settings import KEYS
from ullage.core.compaction.policy import Policy, known_policies

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"
SETTINGS = DOCS.with_name("settings.md")
USER = 'policy = "off"\n\n[context_windows]\n# "mine" = 1\n"mine" = 8192\nboth = 1024\n'
PROJECT = (
    'base_url = "http://127.0.0.1:8080/v1"\ncontext_windows = { "theirs" = 4096, both = 2048 }\n'
)


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, Path]:
    """Return the user's and the project's file; nothing else is set."""
    for variable in config.variables(os.environ):
        monkeypatch.delenv(variable, raising=False)
    user, project = tmp_path / "user.toml", tmp_path / "here" / "ullage.toml"
    project.parent.mkdir()
    user.write_text("")
    monkeypatch.setenv("ULLAGE_CONFIG", str(user))
    monkeypatch.chdir(project.parent)
    return user, project


def shown(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["config", "show", *more]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_without_files_every_setting_has_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "--origin")
    assert [line.split("# ")[-1] for line in out.splitlines()] == ["default"] * len(KEYS)
    assert all(key in out for key in KEYS)
    assert json.loads(shown(capsys, "--json"))["base_url"] is None


def test_what_is_shown_can_be_read_back_as_a_file(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    user, project = files
    user.write_text(USER + '[base_models]\n"my deployment \\u2713 \\t" = "gpt-4o"\n')
    project.write_text(PROJECT)
    for more in ([], ["--origin"]):
        read = tomllib.loads(shown(capsys, *more))
        told = json.loads(shown(capsys, "--json"))
        assert read == {key: held for key, held in told.items() if held not in (None, {})}
        assert read["base_models"] == {"my deployment ✓ \t": "gpt-4o"}


def test_each_entry_names_its_own_place(
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    user, project = files
    user.write_text(USER)
    project.write_text(PROJECT)
    monkeypatch.setenv("ULLAGE_CONTEXT_WINDOWS", '{"yours": 512}')
    monkeypatch.setenv("ULLAGE_READ_TIMEOUT_S", "5")
    told = json.loads(shown(capsys, "--json", "--origin"))
    assert told["policy"] == {"value": "off", "origin": f"{user}, line 1"}
    assert told["base_url"]["origin"] == f"{project}, line 1"
    assert told["read_timeout_s"] == {"value": 5.0, "origin": "$ULLAGE_READ_TIMEOUT_S"}
    assert told["offline"]["origin"] == "default"
    assert told["context_windows"]["entries"] == {
        "mine": f"{user}, line 5",
        "both": f"{project}, line 2",
        "theirs": f"{project}, line 2",
        "yours": "$ULLAGE_CONTEXT_WINDOWS",
    }
    out = shown(capsys, "--origin")
    assert re.search(rf"^mine = 8192 +# {re.escape(str(user))}, line 5$", out, re.MULTILINE)


def test_an_entry_that_was_ignored_is_not_the_origin_of_the_one_that_holds(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    user, project = files
    user.write_text(USER)
    project.write_text("[context_windows]\nmine = 0\n")
    assert main(["config", "show", "--origin", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["context_windows"]["entries"]["mine"] == f"{user}, line 5"


def test_a_json_file_and_a_name_written_otherwise_are_found(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user, project = files
    named = user.with_suffix(".json")
    named.write_text('{\n  "context_windows": {\n    "am": 1, "m": 200000\n  }\n}\n')
    project.write_text('policy = "off"\n[context_windows]\n"\\u0061b" = 4096\n')
    monkeypatch.setenv("ULLAGE_CONFIG", str(named))
    entries = json.loads(shown(capsys, "--json", "--origin"))["context_windows"]["entries"]
    assert entries == {
        "am": f"{named}, line 3",
        "m": f"{named}, line 3",
        "ab": f"{project}, line 3",
    }


def test_an_unknown_key_is_refused_with_file_line_and_nearest(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, project = files
    project.write_text('\npolcy = "off"\n')
    assert main(["config", "show"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{project}, line 2: unknown setting 'polcy'; did you mean 'policy'?" in err


WHOLE = """
policy = { preset = "advisory", thresholds = { warning = 0.75 }, results = { "a b" = "once" } }
pins = [0]
store = "postgresql://me:sk-secret@h/db"

[[serve.upstreams]]
name = "u"
base_url = "http://h:1/v1"
api_key = "sk-secret"

[serve.tokens]
alice = "sk-secret-0123456789"

[summarizer]
model = "small"
base_url = "http://me:sk-secret@h:1/v1"
api_key = "$KEY"
"""


def test_tables_are_shown_with_each_place_and_without_their_secrets(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user, _ = files
    user.write_text(WHOLE)
    monkeypatch.setenv("KEY", "sk-secret")
    monkeypatch.setenv("ULLAGE_POLICY__KEEP_LAST", "3")
    for more in ([], ["--origin"], ["--json"], ["--json", "--origin"]):
        assert "sk-secret" not in shown(capsys, *more)
    out = shown(capsys, "--origin")
    read = tomllib.loads(out)
    assert read["policy"] == {
        "preset": "advisory",
        "thresholds": {"warning": 0.75},
        "results": {"a b": "once"},
        "keep_last": 3,
    }
    assert read["serve"]["upstreams"] == [{"name": "u", "base_url": "http://h:1/v1"}]
    assert read["summarizer"] == {"model": "small", "base_url": "http://h:1/v1"}
    assert re.search(r"^keep_last = 3 +# \$ULLAGE_POLICY__KEEP_LAST$", out, re.MULTILINE)
    assert re.search(r"^thresholds\.warning = 0\.75 +# .*line 2$", out, re.MULTILINE)
    assert re.search(
        r"^# summarizer\.api_key is set and not shown +# .*line 17$", out, re.MULTILINE
    )
    assert re.search(
        r"^# serve\.tokens\.alice is set and not shown +# .*line 12$", out, re.MULTILINE
    )
    told = json.loads(shown(capsys, "--json", "--origin"))
    assert told["policy"]["entries"]["keep_last"] == "$ULLAGE_POLICY__KEEP_LAST"


def test_a_value_set_by_hand_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "--origin", "--set", "policy=off", "--set", "read_timeout_s=5")
    assert re.search(r'^policy = "off" +# --set policy$', out, re.MULTILINE)
    assert re.search(r"^read_timeout_s = 5\.0 +# --set read_timeout_s$", out, re.MULTILINE)


@pytest.mark.parametrize("more", [[], ["--origin"], ["--json"], ["--json", "--origin"]])
@pytest.mark.parametrize("url", ["http://me:sk-secret@h:1/v1", "http://me:sk-secret@[::1"])
def test_a_password_in_a_url_is_not_shown(
    url: str,
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ULLAGE_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    out = shown(capsys, *more)
    assert "sk-secret" not in out
    assert ("http://h:1/v1" in out) or ("(no URL)" in out)


def test_show_has_to_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["config"])
    assert stopped.value.code == 2
    assert "show" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "chat", "resume", "compact", "serve"])
def test_every_face_takes_the_names_that_the_setting_takes(command: str) -> None:
    whole: Any = parser(command)
    (policy,) = (a for a in whole.inner[command]._actions if a.dest == "policy")
    assert tuple(policy.choices) == known_policies()
    for name in known_policies():
        with config.given_options([f"policy={name}"]):
            assert config.load().settings.policy == Policy.from_name(name)


# --- the page -------------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)


def test_the_page_of_settings_is_what_the_schema_says() -> None:
    """Whoever changes the schema runs `make docs`."""
    assert settings_page.page() == SETTINGS.read_text("utf-8")


@pytest.mark.parametrize("table", Table.__subclasses__())
def test_every_field_has_its_sentence(table: type[Table]) -> None:
    assert list(settings_page.read_fields(table)) == [each.name for each in fields(table)]


def test_the_files_of_the_page_are_read_as_they_stand(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    user, _ = files
    (text,) = blocks("toml")
    user.write_text(text)
    held: Any = config.load().settings
    assert set(tomllib.loads(text)) == set(KEYS)
    assert held.context_windows["qwen3:14b"] == 16_384
    (text,) = blocks("json")
    named = user.with_suffix(".json")
    named.write_text(text)
    monkeypatch.setenv("ULLAGE_CONFIG", str(named))
    assert dict(config.load().settings.context_windows) == {"model": 200_000}


def test_the_variables_of_the_page_are_read_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks("sh")
    given = dict(re.findall(r"export (\w+)='?([^'\n]*)'?", text))
    assert given
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    places = config.load().places
    assert {f"${variable}" for variable in given if variable != "ULLAGE_POLICY"} <= {
        *places.values()
    }


def test_a_preset_named_by_a_variable_has_its_origin_beside_a_change(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ULLAGE_POLICY", "advisory")
    out = shown(capsys, "--origin", "--set", "policy.tail_share=0.1")
    (line,) = [line for line in out.splitlines() if line.startswith("preset")]
    assert line.split() == ["preset", "=", '"advisory"', "#", "$ULLAGE_POLICY"]
