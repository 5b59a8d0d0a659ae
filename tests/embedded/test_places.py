"""Where wheels come from, as pip and uv are configured: by their files, variables and word."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ullage.core.errors import ConfigurationError
from ullage.embedded.places import default, find_places

HERE = "http://127.0.0.1:9/simple"


def home(folder: Path, **files: str) -> dict[str, str]:
    """Write files (`pip` and `uv`) into a home, and return the environment of its user."""
    for name, path in (("pip", ".config/pip/pip.conf"), ("uv", ".config/uv/uv.toml")):
        if name in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(files[name])
    return {"HOME": str(folder), "XDG_CONFIG_DIRS": str(folder / "etc"), "PATH": ""}


PIP = f"""\
[global]
index-url = {HERE}/pip
proxy = http://127.0.0.1:3128
cert = /etc/authorities.pem
[download]
extra_index_url =
    {HERE}/one
    file:///opt/two/
find-links = ~/wheels
trusted-host = inner.example
"""

UV = f"""\
offline = false
find-links = ["/srv/wheels"]
allow-insecure-host = ["other.example"]
[[index]]
name = "corp"
url = "{HERE}/corp"
[[index]]
url = "{HERE}/uv"
default = true
[[index]]
url = "/srv/flat"
format = "flat"
[pip]
extra-index-url = ["{HERE}/old"]
"""


def test_the_files_of_pip_are_read(tmp_path: Path) -> None:
    found = find_places(home(tmp_path, pip=PIP))
    assert found.indexes == (f"{HERE}/one", "file:///opt/two", f"{HERE}/pip")
    assert found.links == ("~/wheels",)
    assert found.route.proxy == "http://127.0.0.1:3128"
    assert found.route.authorities == "/etc/authorities.pem"
    assert found.route.unchecked == {"inner.example"}


def test_the_file_of_uv_is_read(tmp_path: Path) -> None:
    found = find_places(home(tmp_path, uv=UV) | {"UV_INDEX_CORP_USERNAME": "me"})
    assert set(found.indexes) == {
        *(HERE.replace("//", "//me:@") + "/corp", f"{HERE}/old", f"{HERE}/uv")
    }
    assert found.indexes[-1] == f"{HERE}/uv", "the default comes last"
    assert found.links == ("/srv/wheels", "/srv/flat")
    assert found.route.unchecked == {"other.example"}


def test_a_variable_wins_over_a_file(tmp_path: Path) -> None:
    given = home(tmp_path, pip=PIP, uv=UV)
    found = find_places(given | {"PIP_INDEX_URL": f"{HERE}/a", "UV_DEFAULT_INDEX": f"{HERE}/b"})
    assert found.indexes[-2:] == (f"{HERE}/b", f"{HERE}/a")
    assert not {f"{HERE}/pip", f"{HERE}/uv"} & {*found.indexes}


def test_files_that_were_named_are_read_and_those_that_were_refused_are_not(tmp_path: Path) -> None:
    given = home(tmp_path, pip=PIP, uv=UV)
    (tmp_path / "own.conf").write_text(f"[global]\nindex-url = {HERE}/own\n")
    (tmp_path / "own.toml").write_text(f'index-url = "{HERE}/mine"\n')
    own = {"PIP_CONFIG_FILE": str(tmp_path / "own.conf")}
    found = find_places(given | own | {"UV_CONFIG_FILE": str(tmp_path / "own.toml")})
    assert found.indexes[-2:] == (f"{HERE}/mine", f"{HERE}/own")
    none = {"PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1", "UV_DEFAULT_INDEX": HERE}
    assert find_places(given | none).indexes == (HERE,)


@pytest.mark.parametrize("name", ["PIP_NO_INDEX", "UV_NO_INDEX", "UV_OFFLINE"])
def test_no_index_is_asked_where_none_may_be(name: str, tmp_path: Path) -> None:
    found = find_places(home(tmp_path, pip=PIP, uv=UV) | {name: "1"})
    assert found.indexes == ()
    assert len(found.links) == 3


@pytest.mark.parametrize("broken", [{"pip": "index-url = x"}, {"uv": "index-url = "}, {"uv": "="}])
def test_a_broken_file_is_named(broken: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(pip\.conf|uv\.toml) cannot be read"):
        find_places(home(tmp_path, **broken))


def test_what_a_file_should_not_hold_is_passed_over(tmp_path: Path) -> None:
    held = f'pip = 3\nindex = "x"\nfind-links = 4\nindex-url = "{HERE}"\n'
    assert find_places(home(tmp_path, uv=held)).indexes == (HERE,)


def test_pip_is_asked_for_the_usual_index_where_nobody_names_one(tmp_path: Path) -> None:
    found = find_places(home(tmp_path))
    assert len(found.indexes) == 1
    assert found.indexes[0].startswith("https://")
    assert found.indexes[0].endswith("/simple")


TOOL = """\
#!{python}
print("  --index-url <url>   Base URL of")
print("      the package index (by default: <https://inner.example/simple>) [env: X]")
"""


def test_without_pip_the_uv_that_started_it_is_asked_then_the_pip_that_python_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    usual = default(home(tmp_path))
    assert usual.endswith("/simple")
    tool = tmp_path / "uv"
    tool.write_text(TOOL.format(python=sys.executable))
    tool.chmod(0o755)
    assert default(home(tmp_path) | {"UV": str(tool)}) == "https://inner.example/simple"
    assert default(home(tmp_path) | {"PATH": str(tmp_path)}) == "https://inner.example/simple"
    gone = home(tmp_path) | {"UV": str(tmp_path / "gone")}
    assert default(gone) == usual, "a tool that cannot be started is passed over"


def test_without_any_of_them_the_fix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(ConfigurationError, match="name an index by PIP_INDEX_URL or UV_DEFAULT"):
        default(home(tmp_path), carried=())
