"""The model of bench/scale finds what points were made of; its queues do what theory says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.scale import model, page, queue
from bench.scale.model import Mix

KEPT = Path(__file__).parents[2] / "bench" / "recorded" / "scale.json"


def test_a_line_is_found_again_and_holds_for_a_point_left_out():
    points = [((1.0, x), 5 + 4 * x) for x in (0.0, 1.0, 3.0, 6.0)]
    fit = model.fit_line(("turn", "call"), points, ((1.0, 10.0), 45.0))
    assert fit.values == pytest.approx((5, 4))
    assert (fit.error, fit.held_out) == pytest.approx((0, 0), abs=1e-9)
    off = model.fit_line(("turn", "call"), points, ((1.0, 10.0), 90.0))
    assert off.held_out == pytest.approx(0.5)


def test_the_scalability_law_is_found_again():
    def rate(n: int) -> float:
        return n / (0.001 * (1 + 0.1 * (n - 1) + 0.01 * n * (n - 1)))

    rows = [{"threads": n, "rate": rate(n)} for n in (1, 2, 4, 5, 8)]
    law = model.fit_scaling(rows, 5)
    assert law.fit.held_out < 1e-6
    assert law.rate(16) == pytest.approx(rate(16))


def test_one_core_waits_as_theory_says():
    """An M/M/1 queue at load 0.7 waits 0.7 / 0.3 of a service time in the mean (Kleinrock)."""
    arrivals = queue.Arrivals(rate=700.0, tenants=1)
    found = queue.simulate(arrivals, queue.Service(1, 0.001, [0.0]), 40_000)
    whole = found.mean + 0.001
    assert 0.003 < whole < 0.0045, "beyond its own time a request is counted from zero"


def test_syncs_are_shared_by_those_who_wait():
    service = queue.Service(8, 1e-6, [0.001])
    alone, many = (queue.close_loop(n, service, 1e-6, 2_000) for n in (1, 16))
    assert alone == pytest.approx(1_000, rel=0.1)
    assert many > 6 * alone


def test_requests_of_one_tenant_take_turns():
    arrivals = queue.Arrivals(rate=500.0, tenants=1)
    free = queue.simulate(arrivals, queue.Service(8, 1e-4, [0.0015]), 5_000)
    serial = queue.simulate(arrivals, queue.Service(8, 1e-4, [0.0015], serial=True), 5_000)
    assert serial.p99 > 3 * free.p99


def test_bursts_keep_the_rate_and_make_it_worse():
    service = queue.Service(2, 0.001, [0.0])
    steady, bursts = (
        queue.simulate(queue.Arrivals(1_000.0, burst=burst), service) for burst in (1.0, 4.0)
    )
    assert bursts.seconds == pytest.approx(steady.seconds, rel=0.25)
    assert bursts.p99 > steady.p99


def test_a_knee_is_the_first_load_beyond_ten_times():
    assert queue.find_knee((0.5, 0.8, 0.9), (0.1, 1.1, 9.0), 0.1) == 0.8
    assert queue.find_knee((0.5,), (0.1,), 0.1) is None


def test_the_page_is_made_of_the_kept_figures():
    results = json.loads(KEPT.read_text())
    costs, fits = page.fit_costs(results)
    assert all(fit.held_out < 1 for fit in fits.values())
    one, ten = (model.predict(n, Mix(), costs) for n in (1.0, 10.0))
    assert ten.wal == pytest.approx(10 * one.wal)
    assert ten.xid_hours == pytest.approx(one.xid_hours / 10)
    limits = model.find_limits(Mix(), costs, page.make_machine(results))
    assert [at for _, at in limits] == sorted(at for _, at in limits)
    need = model.predict(limits[0][1], Mix(), costs)
    assert (need.table_day + need.index_day) * Mix().kept_days > 0
