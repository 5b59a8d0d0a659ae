"""What deploy/ has can be used: read by what will read it, hardened, and in step with the product.

`make deploy-check` reads compose.yaml by its schema; docs/deploy.md names what was not tried.
"""

from __future__ import annotations

import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.prometheus import PrometheusError, obtain
from ullage import config
from ullage.cli.main import parser
from ullage.config import serving
from ullage.proxy.pages import OPEN

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONTAINERFILE = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")
STEPS = [line.split(" ", 1) for line in CONTAINERFILE.splitlines() if re.match(r"[A-Z]+ ", line)]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
UPSTREAM = "http://127.0.0.1:9"

MOST_EXPOSED = 1.5
"""Of ten, as `systemd-analyze security` weighs a unit; services without hardening have 9.6."""

posix = pytest.mark.skipif(sys.platform == "win32", reason="a script for sh")
analyzed = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")


def write_secrets(folder: Path) -> subprocess.CompletedProcess[str]:
    script = Path(shutil.copy(DEPLOY / "secrets.sh", folder))
    words = ["sh", str(script), UPSTREAM]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@posix
def test_secrets_are_drawn_once_and_the_proxy_takes_its_file(tmp_path: Path) -> None:
    assert write_secrets(tmp_path).returncode == 0
    folder = tmp_path / "secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o444}
    names = {Path(one["file"]).name for one in COMPOSE["secrets"].values()}
    assert names == {file.name for file in folder.iterdir()}

    serve = serving.read(config.load({}, named=folder / "serve.toml"), store="memory:")
    assert (serve.host, serve.port, serve.upstreams[0].base_url) == ("0.0.0.0", 8790, UPSTREAM)
    assert {"proxy"} == set(serve.hosts)
    assert serve.tokens["prometheus"] == (folder / "prometheus").read_text()
    assert serve.is_operator("operator")
    assert not serve.is_operator("prometheus")
    assert not serve.is_operator("client")
    assert serve.store == f"postgresql://ullage:{(folder / 'postgres').read_text()}@postgres/ullage"

    before = (folder / "serve.toml").read_text()
    again = write_secrets(tmp_path)
    assert again.returncode == 1
    assert "is kept as it is" in again.stderr
    assert (folder / "serve.toml").read_text() == before


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert not [text for text in map(str, service.get("environment", {}).values()) if "$" in text]
    if "build" not in service:  # the proxy's check stands in its image
        assert service["healthcheck"]["test"][0] == "CMD"
        assert re.search(r":[\w.-]*\d[\w.-]*$", service["image"]), "a tag that says a version"


def test_what_is_mounted_is_there() -> None:
    mounts = [text for one in SERVICES.values() for text in one["volumes"] if text.startswith(".")]
    assert mounts
    assert [text for text in mounts if not (DEPLOY / text.split(":")[0]).is_file()] == []
    assert all(text.endswith(":ro") for text in mounts)
    volumes = {text.split(":")[0] for one in SERVICES.values() for text in one["volumes"]}
    assert {text for text in volumes if not text.startswith(".")} == set(COMPOSE["volumes"])


def test_grafana_finds_its_dashboard_and_its_source() -> None:
    provider = yaml.safe_load((DEPLOY / "grafana" / "dashboard.yml").read_text("utf-8"))
    folder = provider["providers"][0]["options"]["path"]
    assert f"../grafana/ullage.json:{folder}/ullage.json:ro" in SERVICES["grafana"]["volumes"]
    source = yaml.safe_load((DEPLOY / "grafana" / "datasource.yml").read_text("utf-8"))
    assert source["datasources"][0]["url"] == "http://prometheus:9090"


def test_the_last_stage_runs_as_nobody_in_particular_and_builds_nothing() -> None:
    last = STEPS[max(i for i, (word, _) in enumerate(STEPS) if word == "FROM") :]
    (user,) = (text for word, text in last if word == "USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert not [
        text for word, text in last if word == "RUN" and "install " in text and "-d" not in text
    ]
    (check,) = (text for word, text in last if word == "HEALTHCHECK")
    assert any(f":8790{path}'" in check for path in OPEN)
    assert next(text for word, text in STEPS if word == "COPY").startswith("requirements/")


def test_everything_from_an_index_is_pinned_by_hash() -> None:
    fetched = [text for word, text in STEPS if word == "RUN" and "pip install" in text]
    for text in fetched:
        assert "--no-deps" in text
        assert "--no-index" in text or "--require-hashes" in text
    lock = (ROOT / "requirements" / "image.txt").read_text("utf-8")
    assert {"aiohttp", "psycopg-binary", "procrastinate", "uvloop"} <= set(
        re.findall(r"(?m)^([a-z0-9-]+)==", lock)
    )


def read_unit(unit: Path, key: str) -> list[str]:
    return re.findall(rf"(?m)^{key}=(.*)$", unit.read_text("utf-8"))


@pytest.mark.parametrize("words", [*UNITS, "image"], ids=lambda one: getattr(one, "name", one))
def test_what_is_started_is_a_command_that_ullage_takes(words: Path | str) -> None:
    if isinstance(words, Path):
        (start,) = read_unit(words, "ExecStart")
        program, *given = shlex.split(start.replace("%i", "1").replace("%l", "here"))
        assert program == "/opt/ullage/bin/ullage"
    else:
        given = yaml.safe_load(next(text for word, text in reversed(STEPS) if word == "CMD"))
    assert parser(given[0]).parse_args(given).command == given[0]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_gives_time_to_end_and_lets_workers_step_back(unit: Path) -> None:
    assert int(read_unit(unit, "TimeoutStopSec")[0]) > 30 + 2
    # a worker process lowers its own priority, which is among @resources
    assert read_unit(unit, "SystemCallFilter")[-1] == "setpriority"


@analyzed
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_reads_a_unit_and_finds_little_exposed(unit: Path, tmp_path: Path) -> None:
    copied = tmp_path / unit.name.replace("@", "@1")
    copied.write_text(unit.read_text("utf-8").replace("/opt/ullage/bin/ullage", sys.executable))
    verify = ["systemd-analyze", "verify", "--man=no", str(copied)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert [
        line for line in done.stderr.splitlines() if tmp_path.name in line or "ullage" in line
    ] == []
    weigh = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(copied)]
    told = subprocess.run(weigh, capture_output=True, text=True, check=False).stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert float(exposure) < MOST_EXPOSED


@posix
@pytest.mark.long
def test_prometheus_takes_its_configuration_with_the_rules(tmp_path: Path) -> None:
    write_secrets(tmp_path)
    text = (DEPLOY / "prometheus.yml").read_text("utf-8")
    text = text.replace("/etc/prometheus/alerts.yml", str(ROOT / "grafana" / "alerts.yml"))
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/run/secrets/prometheus", str(tmp_path / "secrets/prometheus")))
    try:
        tool = obtain().tool
    except PrometheusError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [tool, "check", "config", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout
