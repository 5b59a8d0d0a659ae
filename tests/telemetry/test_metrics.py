"""Which event counts as what, and that nothing is loaded or counted where nobody listens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from tests.storage.records import checkpoint
from ullage.core.compaction.aftermath import Aftermath
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ErrorKind
from ullage.core.guard.events import (
    Answered,
    Compacted,
    CompactionFailed,
    ContextPressure,
    Event,
    Notice,
    OverShare,
    RecoveryExhausted,
    Refused,
    Repaired,
    SummaryProgress,
    TruncationDetected,
)
from ullage.core.tokens.cost import Price, cost
from ullage.core.tokens.gauge import Assessment
from ullage.core.tokens.truncation import Truncation
from ullage.core.tokens.window import Window
from ullage.guard.guard import Guard
from ullage.runtime import Runtime
from ullage.telemetry import CounterMetric, Described, Gauge, Registry
from ullage.telemetry.metrics import COUNTED, Metrics, ProxyMeters, enable
from ullage.telemetry.protocol import Listener, add_listener
from ullage.workers.counters import DESCRIBED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "metrics.md"
BOARD = ROOT / "grafana" / "ullage.json"
RULES = ROOT / "grafana" / "alerts.yml"
PUBLIC = {
    "ullage_context_size_tokens": {"model", "phase"},
    "ullage_context_used_ratio": {"model"},
    "ullage_compactions_total": {"strategy", "trigger", "outcome"},
    "ullage_compaction_ratio": {"strategy"},
    "ullage_overflows_total": {"model", "phase"},
    "ullage_silent_truncations_total": {"model"},
    "ullage_compaction_faults_total": {"kind"},
    "ullage_compaction_answers": set(),
    "ullage_calls_after_compaction_total": {"kind"},
    "ullage_cache_busts_total": {"model", "kind"},
    "ullage_cache_bust_tokens_total": {"model", "kind"},
    "ullage_cost_usd_total": {"model"},
    "ullage_unpriced_tokens_total": {"model"},
    "ullage_context_headroom_tokens": {"model"},
    "ullage_tokens_total": {"model", "kind"},
    "ullage_compaction_reclaimed_tokens_total": {"strategy"},
}
PROXY = {
    "ullage_requests_total": {"model", "outcome"},
    "ullage_guard_overhead_seconds": set(),
    "ullage_compaction_duration_seconds": set(),
    "ullage_overflow_recoveries_total": {"outcome"},
    "ullage_context_window_tokens": {"model", "source"},
    "ullage_pressure_transitions_total": {"model", "tier"},
    "ullage_streams_aborted_total": {"side"},
    "ullage_tool_answers_total": {"tool", "outcome"},
    "ullage_requests_refused_total": {"bound"},
    "ullage_requests_waiting": set(),
    "ullage_request_bytes": set(),
    "ullage_resident_bytes": set(),
    "ullage_workers_ended_total": set(),
    "ullage_store_away_seconds": set(),
    "ullage_store_waiting_changes": set(),
    "ullage_guard_faults_total": set(),
    "ullage_unguarded_requests_total": {"model", "reason"},
}
FULL = Assessment(True, "warning", 0.85, 850, 1_000, "estimated")
CUT = TruncationDetected(Truncation(("short",), 10, 2_000, 10))
USED = Usage(100, cache_read=20, output=30, reasoning=4)
PRICED = cost(USED, [Price(0, input=1, output=2, cache_read=0.5)])
PARTLY = cost(USED, [Price(0, input=1, output=2)])
USED_KINDS = {
    "ullage_tokens_total kind=input_uncached model=m": 100,
    "ullage_tokens_total kind=cache_read model=m": 20,
    "ullage_tokens_total kind=output model=m": 30,
    "ullage_tokens_total kind=reasoning model=m": 4,
}
"""What an answer adds whatever its price: its tokens, in kinds that add up."""
MADE = replace(checkpoint("p", 1), tokens_before=1_000, tokens_after=400)


def told(*events: Event) -> dict[str, float]:
    """Return what Prometheus reads after these events, each sample by its name and labels."""
    metrics = Metrics("m")
    for event in events:
        metrics.on_event(event)
    return {
        " ".join([s.name, *(f"{k}={v}" for k, v in sorted(s.labels.items()))]): s.value
        for family in parsed(metrics.render())
        for s in family.samples
    }


def test_the_metrics_are_the_public_ones_with_their_labels():
    registry = Metrics().registry
    assert {d.name: set(d.labels) for d in registry.list_described()} == PUBLIC
    ProxyMeters(registry)
    assert {d.name: set(d.labels) for d in registry.list_described()} == {**PUBLIC, **PROXY}


def test_every_metric_has_a_line_of_help_that_prometheus_reads():
    registry = Metrics().registry
    ProxyMeters(registry)
    for described in registry.list_described():
        labels = dict.fromkeys(described.labels, "x")
        metric = registry.metric(described.name)
        assert metric is not None
        if isinstance(metric, CounterMetric):
            metric.add(1, **labels)
        elif isinstance(metric, Gauge):
            metric.set(1, **labels)
        else:
            metric.observe(1, **labels)
    families = {family.name: family for family in parsed(registry.render())}
    assert {name.removesuffix("_total") for name in {**PUBLIC, **PROXY}} == families.keys()
    assert all(family.documentation.endswith(".") for family in families.values())


def test_every_event_is_counted_or_known_to_be_no_metric():
    assert {*COUNTED, OverShare, Repaired, Notice, SummaryProgress} == set(get_args(Event))
    assert told(Notice("text"), OverShare(()), Repaired(()), SummaryProgress(0, 1)) == {}


def test_the_share_of_a_window_is_counted_once_a_send():
    found = told(ContextPressure(FULL))
    assert found["ullage_context_used_ratio_count model=m"] == 1
    assert found["ullage_context_used_ratio_sum model=m"] == 0.85
    assert found["ullage_context_used_ratio_bucket le=0.8 model=m"] == 0
    assert found["ullage_context_used_ratio_bucket le=0.9 model=m"] == 1


def test_the_room_that_is_left_is_counted_once_a_send():
    found = told(ContextPressure(FULL), ContextPressure(FULL, "warning", "reported"))
    assert found["ullage_context_headroom_tokens_sum model=m"] == 150
    assert found["ullage_context_headroom_tokens_count model=m"] == 1
    over = replace(FULL, input_tokens=1_200, ratio=1.2)
    assert told(ContextPressure(over))["ullage_context_headroom_tokens_sum model=m"] == 0
    lone = told(ContextPressure(replace(FULL, window_tokens=None)))
    assert not any("headroom" in name for name in lone)


def test_an_unknown_window_is_no_share_of_nothing():
    assert told(ContextPressure(Assessment(False, "unavailable"))) == {}


@pytest.mark.parametrize(("reached", "outcome"), [(True, "reached"), (False, "missed")])
def test_a_compaction_counts_with_its_sizes_and_its_ratio(reached: bool, outcome: str):
    found = told(Compacted(MADE, reached))
    name = f"ullage_compactions_total outcome={outcome} strategy=trim_oldest trigger=pressure"
    assert found[name] == 1
    assert found["ullage_context_size_tokens_sum model=m phase=before"] == 1_000
    assert found["ullage_context_size_tokens_sum model=m phase=after"] == 400
    assert found["ullage_compaction_ratio_sum strategy=trim_oldest"] == 0.4
    assert found["ullage_compaction_reclaimed_tokens_total strategy=trim_oldest"] == 600


def test_a_compaction_tells_what_came_of_the_one_before_it():
    past = Aftermath(7, 5, 2, 9, 1, 1, 300)
    found = told(Compacted(replace(MADE, since=past.to_dict()), reached=True))
    assert found["ullage_compaction_answers_sum"] == 7
    assert found["ullage_calls_after_compaction_total kind=repeated"] == 2
    assert found["ullage_calls_after_compaction_total kind=new"] == 3
    assert not any("_answers" in name for name in told(Compacted(MADE, reached=True)))


def test_a_compaction_of_nothing_has_no_ratio():
    empty = replace(MADE, tokens_before=0, tokens_after=0)
    assert not any("ratio" in name for name in told(Compacted(empty, reached=True)))


def test_a_failed_compaction_counts_without_its_prose():
    found = told(CompactionFailed("orphan: message 3 says hello"), RecoveryExhausted("too large"))
    assert found == {
        "ullage_compactions_total outcome=failed strategy=unknown trigger=unknown": 1,
        "ullage_compactions_total outcome=exhausted strategy=unknown trigger=overflow_recovery": 1,
    }


@pytest.mark.parametrize("phase", ["predicted", "upstream"])
def test_an_overflow_counts_by_who_said_it(phase: Any):
    events = [Refused(ErrorKind("input"), phase, ""), Refused(ErrorKind("total"), phase, "other-m")]
    assert told(*events) == {
        f"ullage_overflows_total model=m phase={phase}": 1,
        f"ullage_overflows_total model=other-m phase={phase}": 1,
    }


@pytest.mark.parametrize("kind", ["output_cap", "rate_limit", "quota", "bytes", "media", "other"])
def test_a_refusal_that_says_nothing_of_the_window_is_no_overflow(kind: Any):
    assert told(Refused(ErrorKind(kind), "upstream", "m")) == {}


def test_a_cut_prompt_counts():
    assert told(CUT, CUT) == {"ullage_silent_truncations_total model=m": 2}


def test_a_priced_answer_adds_its_dollars():
    assert told(Answered(USED, PRICED, "m")) == {
        **USED_KINDS,
        "ullage_cost_usd_total model=m": pytest.approx((100 + 10 + 68) / 1e6),
    }


def test_an_unknown_price_counts_tokens_and_never_0_dollars():
    unpriced = {**USED_KINDS, "ullage_unpriced_tokens_total model=m": 154}
    assert told(Answered(USED, None, "m")) == unpriced
    unknown = cost(USED, [])
    assert told(Answered(USED, unknown, "m")) == unpriced


def test_of_a_partly_priced_answer_each_part_counts_where_it_belongs():
    assert told(Answered(USED, PARTLY, "m")) == {
        **USED_KINDS,
        "ullage_cost_usd_total model=m": pytest.approx((100 + 68) / 1e6),
        "ullage_unpriced_tokens_total model=m": 20,
    }


def test_an_answer_of_nothing_counts_nothing():
    assert told(Answered(Usage(0), cost(Usage(0), []), "m")) == {}


def test_several_guards_share_one_page():
    registry = Registry()
    for model in ("a", "b"):
        Metrics(model, registry=registry).on_event(CUT)
    assert registry.render().count("ullage_silent_truncations_total{") == 2
    assert registry.render().count("# TYPE") == 1


@dataclass
class Recording:
    """Listens and keeps what it heard."""

    heard: list[Event]

    def record_event(self, event: Event, model: str | None) -> None:
        self.heard.append(event)


@dataclass
class Shared:
    """Stands for a runtime: it has one place for metrics."""

    metrics: Listener | None = None


def test_enabling_twice_counts_in_one_place():
    host = Shared()
    metrics = enable(host)
    assert enable(host) is metrics is host.metrics
    metrics.record_event(CUT, "m")
    assert metrics.silent_truncations.value(model="m") == 1


def test_nobody_is_pushed_aside():
    host, first = Shared(), Recording([])
    host.metrics = first
    metrics = enable(host)
    second = Recording([])
    add_listener(host, second)
    assert enable(host) is metrics
    assert host.metrics is not None
    host.metrics.record_event(CUT, "m")
    assert metrics.silent_truncations.value(model="m") == 1
    assert first.heard == second.heard == [CUT]


def test_a_proxy_counts_what_no_event_says():
    registry = Registry()
    meters = ProxyMeters(registry)
    meters.request("m", "trimmed")
    meters.overhead(0.002)
    meters.overhead(-0.001)  # a clock that was set back
    meters.observe_compaction(0.2)
    meters.recovery("recovered")
    meters.pressure("m", "none", "warning")
    meters.pressure("m", "warning", "warning")
    meters.stream_aborted("client")
    meters.fault()
    meters.leave_unguarded("m", "malformed_history")
    meters.store(2.5, 3)
    meters.load(4, 5_000, 6_000)
    meters.refuse("most_bytes")
    meters.end_worker()
    assert meters.requests.value(model="m", outcome="trimmed") == 1
    overhead = meters.guard_overhead.value()
    assert overhead is not None
    assert (overhead.count, overhead.total) == (2, 0.002)
    duration = meters.compaction_duration.value()
    assert duration is not None
    assert duration.total == 0.2
    assert meters.recoveries.value(outcome="recovered") == 1
    assert meters.transitions.value(model="m", tier="warning") == 1
    assert meters.streams_aborted.value(side="client") == 1
    assert meters.guard_faults.value() == 1
    assert meters.unguarded.value(model="m", reason="malformed_history") == 1
    assert (meters.store_away.value(), meters.store_waiting.value()) == (2.5, 3)
    meters.store(None, 0)
    assert meters.store_away.value() == 0
    assert (meters.requests_waiting.value(), meters.request_bytes.value()) == (4, 5_000)
    assert meters.refused.value(bound="most_bytes") == 1
    assert meters.workers_ended.value() == 1
    assert registry.render().count("# HELP") == 15


def test_a_window_is_said_by_one_source_at_a_time():
    meters = ProxyMeters(Registry())
    meters.window("m", Window(8_192, source="table"))
    meters.window("m", Window(4_096, source="refusal"))
    assert meters.windows.value(model="m", source="table") is None
    assert meters.windows.value(model="m", source="refusal") == 4_096
    meters.window("m", Window())
    assert meters.windows.value(model="m", source="refusal") is None


def test_every_metric_on_the_dashboard_is_one_that_there_is():
    board = json.loads(BOARD.read_text("utf-8"))
    rules = RULES.read_text("utf-8")
    asked = [t["expr"] for panel in board["panels"] for t in panel.get("targets", [])]
    asked += [variable["query"] for variable in board["templating"]["list"]]
    named = set(re.findall(r"ullage_[a-z_]+", " ".join(map(str, [*asked, rules]))))
    named -= {one.name for one in DESCRIBED}
    known = {**PUBLIC, **PROXY}
    for name in named:
        stem = re.sub(r"_(bucket|sum|count)$", "", name)
        assert stem in known, name
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} == known.keys()


def test_the_dashboard_groups_by_labels_that_there_are():
    board = json.loads(BOARD.read_text("utf-8"))
    known = {**PUBLIC, **PROXY}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            names = re.findall(r"ullage_[a-z_]+", target["expr"])
            labels = set.union(*(known[re.sub(r"_(bucket|sum|count)$", "", n)] for n in names))
            groups = re.findall(r"by \(([^)]*)\)", target["expr"])
            grouped = {label.strip() for group in groups for label in group.split(",")}
            assert grouped <= {*labels, "le"}, target["expr"]


def test_a_real_guard_is_counted():
    metrics = Metrics("gpt-4o")
    guard = Guard("gpt-4o", window=2_000, on_event=metrics.on_event, runtime=Runtime())
    talk = [{"role": "user", "content": f"{n} " + "lorem ipsum dolor " * 20} for n in range(40)]
    view = guard.prepare(talk, max_tokens=100)
    used = metrics.context_used.value(model="gpt-4o")
    assert used is not None
    assert 0 < used.total / used.count < 1
    assert view.compaction is not None
    strategy = view.compaction.strategy
    ratio = metrics.compaction_ratio.value(strategy=strategy)
    assert ratio is not None
    assert 0 < ratio.total < 1
    usage = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}
    view.observe({"usage": usage, "choices": []})
    assert metrics.cost.value(model="gpt-4o") or metrics.unpriced_tokens.value(model="gpt-4o")
    assert {family.name for family in parsed(metrics.render())} >= {
        "ullage_compactions",
        "ullage_context_size_tokens",
        "ullage_context_used_ratio",
    }


def test_nobody_who_guards_loads_the_metrics():
    code = (
        "import sys, ullage; ullage.Guard('gpt-4o'); "
        "print([m for m in sys.modules if 'telemetry' in m or m == 'ullage.metrics'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_example_of_the_page_runs_and_the_page_names_every_metric(
    capsys: pytest.CaptureFixture[str],
):
    page = DOCS.read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "metrics.md", "exec"), {})
    assert 'outcome="failed"} 1' in capsys.readouterr().out
    rows = dict(re.findall(r"(?m)^\| `(ullage_\w+)` \| \w+ \| (.+?) \|", page))
    named = {name: set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", rows[name]))) for name in rows}
    worker = {described.name: set(described.labels) for described in DESCRIBED}
    assert named == {**PUBLIC, **PROXY, **worker}


TOLD = Described("told_total", "Told.", ("model",))


def test_a_label_steers_no_terminal():
    registry = Registry()
    registry.counter(TOLD).add(model="a\x9b31m\u202eb\nc")
    registry.counter(TOLD).add(model="a\x1b31m\u200eb\nc")
    (line,) = [line for line in registry.render().splitlines() if line.startswith("told_total{")]
    assert line == 'told_total{model="a\ufffd31m\ufffdb\\nc"} 2'
