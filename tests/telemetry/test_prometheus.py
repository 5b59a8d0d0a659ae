"""A real Prometheus reads a real proxy, by the rules and the questions that ship with it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.serving import proxied
from tests.support.casks import MODEL, Cask
from tests.support.loopback import serve
from tests.support.prometheus import Programs, Prometheus, PrometheusError, obtain, running
from ullage.runtime import Runtime

ROOT = Path(__file__).parents[2]
RULES = ROOT / "grafana" / "alerts.yml"
BOARD = ROOT / "grafana" / "ullage.json"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def programs() -> Programs:
    """Return Prometheus and its tool, where a package can be had."""
    try:
        return obtain()
    except PrometheusError as error:
        pytest.skip(str(error))


def test_each_rule_raises_its_alert_and_stays_silent_before(programs: Programs) -> None:
    told = subprocess.run(
        [programs.tool, "test", "rules", Path(__file__).with_name("alerts_test.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_every_rule_is_tested() -> None:
    rules = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    held = Path(__file__).with_name("alerts_test.yml").read_text()
    assert rules == set(re.findall(r'alertname="(\w+)"', held))


@pytest.fixture(scope="module")
def watching(
    programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Prometheus, Cask]]:
    """Run Prometheus over a proxy in front of a server that cuts prompts in silence."""
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        serve(Cask("cuts", 2_000, 8_000)) as server,
        proxied(server.url.removesuffix("/v1"), rules=(), runtime=Runtime()) as proxy,
        running(programs, RULES, proxy.url.removeprefix("http://"), folder) as prometheus,
    ):
        history = [{"role": "system", "content": "You keep the log of a ship."}]
        prometheus.wait_for(is_read)
        for number in range(12):
            history.append(
                {"role": "user", "content": f"entry {number}: " + "wind and swell " * 150}
            )
            answer = proxy.client.post(
                f"{proxy.url}/v1/chat/completions", json={"model": MODEL, "messages": history}
            )
            history.append(answer.json()["choices"][0]["message"])
            if server.cut:
                break
        yield prometheus, server


def is_read(prometheus: Prometheus) -> bool:
    return bool(prometheus.ask('up{job="ullage"} == 1'))


def test_a_silent_truncation_raises_its_alert(watching: tuple[Prometheus, Cask]) -> None:
    prometheus, server = watching
    assert server.cut

    def is_raised(seen: Prometheus) -> bool:
        return seen.list_alerts().get("UllageSilentTruncation") == "firing"

    assert prometheus.wait_for(is_raised)


def test_every_question_of_the_dashboard_is_answered(watching: tuple[Prometheus, Cask]) -> None:
    prometheus, _ = watching
    questions = re.findall(r'"expr": ("(?:[^"\\]|\\.)*")', BOARD.read_text())
    assert len(questions) > 20
    for question in questions:
        asked = json.loads(question)
        for name, value in (("__rate_interval", "1m"), ("__range", "1h"), ("model", ".*")):
            asked = asked.replace(f"${name}", value)
        prometheus.ask(asked)
