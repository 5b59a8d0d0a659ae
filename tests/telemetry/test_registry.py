"""Counters and histograms: what they hold, and that Prometheus' own parser reads their text."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.parser import text_string_to_metric_families as parsed

from ullage.core.errors import ConfigurationError
from ullage.telemetry import CONTENT_TYPE, Described, Registry
from ullage.telemetry.registry import LONGEST, MOST

FINITE = st.floats(-1e9, 1e9)


def samples(registry: Registry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what Prometheus' parser reads."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parsed(registry.render())
        for sample in family.samples
    }


def test_an_empty_registry_and_an_unused_metric_have_no_text():
    registry = Registry()
    assert registry.render() == ""
    registry.counter(Described("a_total", "says"))
    registry.histogram(Described("b", "says"), [1])
    assert registry.render() == ""


def test_the_text_is_the_format_to_the_letter():
    registry = Registry()
    registry.counter(Described("a_total", 'A "b" \\ c\nd.', ("x", "y"))).add(2, y='q"\\\n', x="1")
    registry.histogram(Described("b_ratio", "B."), (0.5, 1)).observe(0.5)
    assert registry.render() == (
        '# HELP a_total A "b" \\\\ c\\nd.\n'
        "# TYPE a_total counter\n"
        'a_total{x="1",y="q\\"\\\\\\n"} 2\n'
        "# HELP b_ratio B.\n"
        "# TYPE b_ratio histogram\n"
        'b_ratio_bucket{le="0.5"} 1\n'
        'b_ratio_bucket{le="1"} 1\n'
        'b_ratio_bucket{le="+Inf"} 1\n'
        "b_ratio_sum 0.5\n"
        "b_ratio_count 1\n"
    )
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


@given(st.text(min_size=1, max_size=LONGEST), st.text(), st.floats(0, 1e300))
def test_any_label_and_help_come_back_through_their_parser(label: str, says: str, amount: float):
    registry = Registry()
    registry.counter(Described("a_total", says, ("x",))).add(amount, x=label)
    (family,) = parsed(registry.render())
    (sample,) = family.samples
    shown = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in label)
    assert (family.name, family.type) == ("a", "counter")
    assert sample.labels == {"x": shown}
    assert sample.value == amount


def test_half_a_pair_in_a_label_does_not_break_the_text():
    registry = Registry()
    registry.counter(Described("a_total", "A.", ("x",))).add(x="\ud800")
    assert registry.render().encode()
    assert samples(registry) == {("a_total", (("x", "?"),)): 1}


@given(st.lists(FINITE, min_size=1), st.lists(FINITE, min_size=1, unique=True).map(sorted))
def test_buckets_are_those_of_their_own_histogram(values: list[float], edges: list[float]):
    registry, theirs = Registry(), CollectorRegistry()
    ours = registry.histogram(Described("h", "H."), edges)
    other = TheirHistogram("h", "H.", buckets=edges, registry=theirs)
    for value in values:
        ours.observe(value)
        other.observe(value)
    read = {
        (family.name, sample.name, float(sample.labels.get("le", "nan"))): sample.value
        for family in parsed(registry.render())
        for sample in family.samples
    }
    counts = [value for (_, name, _), value in read.items() if name == "h_bucket"]
    expected = [
        sample.value
        for family in theirs.collect()
        for sample in family.samples
        if sample.name == "h_bucket"
    ]
    assert counts == expected
    assert samples(registry)["h_count", ()] == len(values)
    assert samples(registry)["h_sum", ()] == pytest.approx(sum(values))
    seen = ours.value()
    assert seen is not None
    assert seen.count == len(values)


def test_series_are_told_apart_by_all_labels_together():
    registry = Registry()
    counter = registry.counter(Described("a_total", "A.", ("x", "y")))
    counter.add(1, x="ab", y="c")
    counter.add(2, x="a", y="bc")
    counter.add(4, y="bc", x="a")
    assert counter.value(x="ab", y="c") == 1
    assert counter.value(x="a", y="bc") == 6
    assert counter.value(x="a", y="c") is None


def test_a_label_takes_a_bounded_number_of_values():
    registry = Registry()
    counter = registry.counter(Described("a_total", "A.", ("x",)))
    for n in range(MOST + 50):
        counter.add(x=f"model {n}")
    counter.add(x="model 0")
    counter.add(x=None)
    counter.add(x="")
    counter.add(x="m" * 10_000)
    assert len(samples(registry)) == MOST + 2
    assert counter.value(x="other") == 51
    assert counter.value(x="unknown") == 2
    assert counter.value(x="model 0") == 2


def test_a_long_value_is_cut():
    registry = Registry()
    registry.counter(Described("a_total", "A.", ("x",))).add(x="m" * 1_000)
    assert samples(registry) == {("a_total", (("x", "m" * LONGEST),)): 1}


def test_asking_for_a_value_makes_no_series():
    registry = Registry()
    histogram = registry.histogram(Described("h", "H.", ("x",), most=1), [1])
    assert histogram.value(x="asked") is None
    histogram.observe(1, x="used")
    assert samples(registry)["h_count", (("x", "used"),)] == 1


def test_threads_lose_no_count():
    registry = Registry()
    counter = registry.counter(Described("a_total", "A.", ("x",)))
    histogram = registry.histogram(Described("h", "H."), [1])

    def work(_: int) -> None:
        for n in range(500):
            counter.add(x=str(n % 3))
            histogram.observe(n)
            if n % 100 == 0:
                registry.render()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sum(counter.value(x=str(n)) or 0 for n in range(3)) == 2_000
    seen = histogram.value()
    assert seen is not None
    assert seen.count == 2_000


def test_the_same_metric_is_made_once():
    registry = Registry()
    described = Described("a_total", "A.", ("x",))
    assert registry.counter(described) is registry.counter(described)
    assert registry.histogram(Described("h", "H."), [1]) is registry.histogram(
        Described("h", "H."), [1]
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda r: r.counter(Described("a_total", "Other words.")),
        lambda r: r.histogram(Described("a_total", "A."), [1]),
        lambda r: r.counter(Described("h", "H.")),
        lambda r: r.histogram(Described("h", "H."), [1, 2]),
    ],
)
def test_another_metric_of_a_name_is_refused(make: Any):
    registry = Registry()
    registry.counter(Described("a_total", "A."))
    registry.histogram(Described("h", "H."), [1])
    with pytest.raises(ConfigurationError, match="already another metric"):
        make(registry)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda r: Described("1a", "A."),
        lambda r: Described("a b", "A."),
        lambda r: Described("a", "A.", ("le",)),
        lambda r: Described("a", "A.", ("__x",)),
        lambda r: r.counter(Described("a", "A.", ("x",))).add(),
        lambda r: r.counter(Described("a", "A.", ("x",))).add(x="1", y="2"),
        lambda r: r.counter(Described("a", "A.")).add(x="1"),
        lambda r: r.counter(Described("a", "A.")).add(-1),
        lambda r: r.counter(Described("a", "A.")).add(math.nan),
        lambda r: r.counter(Described("a", "A.")).add(math.inf),
        lambda r: r.histogram(Described("a", "A."), []),
        lambda r: r.histogram(Described("a", "A."), [1, 1]),
        lambda r: r.histogram(Described("a", "A."), [1, math.inf]),
        lambda r: r.histogram(Described("a", "A."), [1]).observe(math.nan),
    ],
)
def test_what_prometheus_could_not_read_is_refused(wrong: Any):
    registry = Registry()
    with pytest.raises(ConfigurationError):
        wrong(registry)
    assert registry.render() == ""


def test_a_gauge_says_what_it_was_set_to_last_and_can_be_forgotten():
    registry = Registry()
    gauge = registry.gauge(Described("a_tokens", "A.", ("x",)))
    gauge.set(5, x="1")
    gauge.set(-2.5, x="1")
    gauge.set(7, x="2")
    gauge.remove(x="2")
    gauge.remove(x="never")
    assert gauge.value(x="2") is None
    assert registry.render() == '# HELP a_tokens A.\n# TYPE a_tokens gauge\na_tokens{x="1"} -2.5\n'
    assert samples(registry) == {("a_tokens", (("x", "1"),)): -2.5}
    assert registry.gauge(Described("a_tokens", "A.", ("x",))) is gauge


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_gauge_is_a_number(value: float):
    with pytest.raises(ConfigurationError, match="a cannot be"):
        Registry().gauge(Described("a", "A.")).set(value)


def test_a_gauge_is_no_counter_of_the_same_name():
    registry = Registry()
    registry.counter(Described("a", "A."))
    with pytest.raises(ConfigurationError, match="already another metric"):
        registry.gauge(Described("a", "A."))


def test_metrics_are_found_by_name_used_or_not():
    registry = Registry()
    made = registry.counter(Described("a", "A."))
    assert registry.metric("a") is made
    assert registry.metric("b") is None
    assert registry.list_described() == [Described("a", "A.")]
