"""A discrete simulation of arrivals: bursts, hot tenants, cores and the lock of a tenant.

What a request takes of a core is measured, as is the time of its sync. It knows no database.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

import simpy

ARRIVALS: Final = 20_000


@dataclass(frozen=True)
class Service:
    """What serves: cores, seconds of a core for a request, and those that syncs took.

    A sync is for all that wait when it begins, one at a time; what it takes is drawn from `syncs`.
    With `serial` the requests of one tenant wait for each other, and `syncs` is what each then
    takes by itself.
    """

    cores: int
    cpu_s: float
    syncs: Sequence[float]
    serial: bool = False

    @property
    def alone_s(self) -> float:
        """The seconds that a request takes alone, in the mean."""
        return self.cpu_s + sum(self.syncs) / len(self.syncs)


class Syncs:
    """The one place of syncs: who comes while one is under way shares the next."""

    def __init__(self, world: simpy.Environment, syncs: Sequence[float], chance: random.Random):
        self._world, self._syncs, self._chance = world, syncs, chance
        self._next: simpy.Event | None = None
        self._busy = False

    def join(self) -> simpy.Event:
        """Return what happens when a sync that begins from now on is done."""
        if self._next is None:
            self._next = self._world.event()
            if not self._busy:
                self._world.process(self._run())
        return self._next

    def _run(self) -> Generator[Any, Any, None]:
        self._busy = True
        while self._next is not None:
            done, self._next = self._next, None
            yield self._world.timeout(self._chance.choice(self._syncs))
            done.succeed()
        self._busy = False


@dataclass(frozen=True)
class Arrivals:
    """Who comes: requests a second, in bursts `burst` times as fast in `share` of the time.

    Tenant k of `tenants` sends as k ** -`skew` of the most busy one. Bursts last `burst_s`.
    """

    rate: float
    burst: float = 1.0
    share: float = 0.1
    burst_s: float = 0.05
    tenants: int = 1_000
    skew: float = 0.0


@dataclass(frozen=True)
class Delays:
    """Seconds from arrival to the end of a request beyond those that it takes alone: sorted."""

    waits: Sequence[float]
    seconds: float

    @property
    def p50(self) -> float:
        """The middle one."""
        return self.waits[len(self.waits) // 2]

    @property
    def p99(self) -> float:
        """The one that one in a hundred exceeds."""
        return self.waits[int(len(self.waits) * 0.99)]

    @property
    def mean(self) -> float:
        """The mean."""
        return sum(self.waits) / len(self.waits)


def simulate(arrivals: Arrivals, service: Service, count: int = ARRIVALS, seed: int = 1) -> Delays:
    """Return the delays of so many requests, without those of the first tenth."""
    chance, world = random.Random(seed), simpy.Environment()
    cores = simpy.Resource(world, capacity=service.cores)
    syncs = Syncs(world, service.syncs, chance)
    places = [simpy.Resource(world) for _ in range(arrivals.tenants if service.serial else 0)]
    shares = list(accumulate((n + 1) ** -arrivals.skew for n in range(arrivals.tenants)))
    waits: list[float] = []

    def serve(tenant: int) -> Generator[Any, Any, None]:
        begun, cpu = world.now, chance.expovariate(1 / service.cpu_s)
        place = places[tenant].request() if places else None
        if place is not None:
            yield place
        with cores.request() as core:
            yield core
            yield world.timeout(cpu)
        yield world.timeout(chance.choice(service.syncs)) if place else syncs.join()
        if place is not None:
            places[tenant].release(place)
        waits.append(max(world.now - begun - service.alone_s, 0.0))

    def arrive() -> Generator[Any, Any, None]:
        for gap in _list_gaps(arrivals, count, chance):
            yield world.timeout(gap)
            tenant = chance.choices(range(arrivals.tenants), cum_weights=shares)[0]
            world.process(serve(tenant))

    world.process(arrive())
    world.run()
    return Delays(sorted(waits[count // 10 :]), float(world.now))


def _list_gaps(arrivals: Arrivals, count: int, chance: random.Random) -> list[float]:
    """Return the seconds between arrivals: two rates that take turns, `rate` on the whole."""
    quiet = arrivals.rate / (1 - arrivals.share + arrivals.share * arrivals.burst)
    lasts = (arrivals.burst_s * (1 - arrivals.share) / arrivals.share, arrivals.burst_s)
    gaps: list[float] = []
    state, left, gap = 0, lasts[0], 0.0
    while len(gaps) < count:
        step = chance.expovariate(quiet * (arrivals.burst if state else 1.0))
        if step < left:
            gaps.append(gap + step)
            left, gap = left - step, 0.0
            continue
        gap += left  # nobody came before the rate changed: draw anew, which forgets nothing
        state = 1 - state
        left = lasts[state]
    return gaps


def close_loop(clients: int, service: Service, client_s: float, count: int = ARRIVALS) -> float:
    """Return the requests a second of clients that ask again as soon as they are answered.

    Each takes `client_s` of a core itself, on the same cores: what was measured is so.
    """
    chance, world = random.Random(1), simpy.Environment()
    cores = simpy.Resource(world, capacity=service.cores)
    syncs = Syncs(world, service.syncs, chance)
    interpreter = simpy.Resource(world)  # one thread of Python runs at a time
    done = [0]

    def drive() -> Generator[Any, Any, None]:
        while done[0] < count:
            with interpreter.request() as turn:
                yield turn
                with cores.request() as core:
                    yield core
                    yield world.timeout(chance.expovariate(1 / client_s))
            with cores.request() as core:
                yield core
                yield world.timeout(chance.expovariate(1 / service.cpu_s))
            yield syncs.join()
            done[0] += 1

    for _ in range(clients):
        world.process(drive())
    world.run()
    return done[0] / float(world.now)


def fit_stretch(clients: int, rate: float, service: Service, client_s: float) -> float:
    """Return how much longer all takes than alone, so that so many clients come to this rate.

    Whatever else ran while it was measured is in it.
    """
    low, high = 0.2, 20.0
    for _ in range(12):
        middle = math.sqrt(low * high)
        made = close_loop(clients, stretch(service, middle), client_s * middle, 4_000)
        low, high = (middle, high) if made > rate else (low, middle)
    return math.sqrt(low * high)


def stretch(service: Service, factor: float) -> Service:
    """Return a service whose times are so many times as long."""
    syncs = [one * factor for one in service.syncs]
    return replace(service, cpu_s=service.cpu_s * factor, syncs=syncs)


def find_knee(loads: Sequence[float], waits: Sequence[float], alone: float) -> float | None:
    """Return the first load at which one in a hundred waits longer than ten times its own time."""
    for load, wait in zip(loads, waits, strict=True):
        if wait > 10 * alone:
            return load
    return None
