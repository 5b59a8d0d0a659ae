"""The runbook has a section for each alert; what both name is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.telemetry.test_metrics import PROXY, PUBLIC
from ullage.cli.main import parser
from ullage.config.schema import ServeTable
from ullage.workers.counters import DESCRIBED

ROOT: Final = Path(__file__).parents[2]
RULES: Final = (ROOT / "grafana" / "alerts.yml").read_text("utf-8")
BOOK: Final = (ROOT / "docs" / "runbook.md").read_text("utf-8")
ALERTS: Final = re.findall(r"- alert: (\w+)", RULES)
METRICS: Final = {*PUBLIC, *PROXY, *(one.name for one in DESCRIBED)}


def test_each_alert_names_its_section_and_each_section_is_an_alerts() -> None:
    sections = [name for name in re.findall(r"^## (.+)$", BOOK, re.MULTILINE) if " " not in name]
    assert sorted(sections) == sorted(ALERTS)
    urls = re.findall(r'runbook_url: "(.+)"', RULES)
    assert urls == [f"docs/runbook.md#{name.lower()}" for name in ALERTS]


def test_each_section_says_what_it_means_what_to_do_and_when_it_ends() -> None:
    for name in ALERTS:
        section = BOOK.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for part in ("**Means**", "**See**", "**Causes**", "**Do**", "**Ends**"):
            assert part in section, (name, part)


def test_every_metric_that_is_named_exists() -> None:
    named = set(re.findall(r"\bullage_\w+[a-z]\b", RULES + BOOK))
    assert {re.sub(r"_(count|sum|bucket)$", "", name) for name in named} <= METRICS


def test_every_command_and_setting_that_is_named_exists() -> None:
    for line in re.findall(r"`ullage ([^`]+)`", BOOK):
        given = parser().parse_args(line.split())  # ends where a word lacks
        assert given.command != "worker" or (given.store and given.base_url and given.model)
    settings = set(re.findall(r"`serve\.(\w+)`|`((?:most|max|cache|page)_\w+)`", BOOK))
    assert {one or other for one, other in settings} <= set(ServeTable.__struct_fields__)
