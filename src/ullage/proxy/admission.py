"""Limits on requests, bytes and requests a second, for each client and in all.

A client over its own bounds is told to try again later. If the proxy is full, requests wait in a
line that is fair to clients. The module does not know request bodies. For one event loop.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from ullage.proxy.line import FairLine
from ullage.proxy.workers import refuse_busy

if TYPE_CHECKING:
    from ullage.config.serving import Serve

WAIT_S: Final = 10.0
"""Seconds that a request waits for its turn if the proxy is full."""

AGAIN_S: Final = 2
"""Seconds after which a client over its bounds may come again."""

BUCKETS: Final = 10_000
"""Clients whose request rate is tracked."""


@dataclass(slots=True)
class Admitted:
    """An admitted request: it takes bytes as they come and gives them back at its end.

    Entering the `async with` admits it, or raises RequestRefused with 429.
    """

    client: str
    admission: Admission
    held: int = 0

    async def __aenter__(self) -> Self:
        await self.admission.enter(self.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.admission.leave(self.client, self.held)

    def take(self, size: int) -> None:
        """Take more bytes; raises RequestRefused if that is over a bound."""
        self.admission.take_bytes(self.client, size)
        self.held += size


@dataclass(slots=True)
class Admission:
    """The bounds of a proxy and its running requests.

    `tell` receives the name of the bound that refused a request. `now` returns seconds that never
    go back.
    """

    bounds: Serve
    tell: Callable[[str], None] = lambda _: None
    now: Callable[[], float] = time.monotonic
    requests: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    _line: FairLine = field(init=False)
    _places: int = field(init=False)
    _paces: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = self.bounds.most_requests
        self._line = FairLine(self._places)

    def admit(self, client: str) -> Admitted:
        """Return the context manager that admits a request of a client until it ends."""
        return Admitted(client, self)

    async def enter(self, client: str) -> None:
        """Admit a request when its turn comes; raises RequestRefused with 429."""
        self._check_client(client)
        self.requests[client] = self.requests.get(client, 0) + 1
        try:
            await self._line.enter(client, WAIT_S)
        except BaseException as error:
            self._give_back(self.requests, client, 1)
            if isinstance(error, TimeoutError):
                self._refuse("most_requests")
            raise

    def leave(self, client: str, held: int) -> None:
        """Give back the place of a request, and the bytes that it held."""
        self._line.leave()
        self._give_back(self.requests, client, 1)
        self._give_back(self.sizes, client, held)

    @property
    def size(self) -> int:
        """Bytes of the running requests."""
        return sum(self.sizes.values())

    @property
    def crowding(self) -> float:
        """Number of waiting requests for each admitted one."""
        return self._line.length / self._places

    def take_bytes(self, client: str, size: int) -> None:
        """Take bytes for a client; raises RequestRefused if that is over a bound."""
        bounds, taken = self.bounds, self.sizes.get(client, 0) + size
        if taken > bounds.client_bytes:
            self._refuse("client_bytes")
        if self.size + size > bounds.most_bytes:
            self._refuse("most_bytes")
        self.sizes[client] = taken

    def _check_client(self, client: str) -> None:
        if self.requests.get(client, 0) >= self.bounds.client_requests:
            self._refuse("client_requests")
        if self.bounds.client_rate is not None and not self._has_pace(client):
            self._refuse("client_rate")

    def _has_pace(self, client: str) -> bool:
        """Tell whether a client may ask now: `client_rate` a second, in bursts of one second.

        This is a token bucket: it keeps the tokens left and the time of the last request.
        """
        rate = self.bounds.client_rate or 0.0
        burst, now = max(rate, 1.0), self.now()
        left, at = self._paces.pop(client, (burst, now))
        left = min(left + (now - at) * rate, burst)
        may = left >= 1.0
        self._paces[client] = (left - may, now)
        if len(self._paces) > BUCKETS:
            del self._paces[next(iter(self._paces))]
        return may

    def _refuse(self, bound: str) -> None:
        self.tell(bound)
        raise refuse_busy(AGAIN_S, bound)

    @staticmethod
    def _give_back(counts: Counter[str], client: str, size: int) -> None:
        left = counts.get(client, 0) - size
        if left > 0:
            counts[client] = left
        else:
            counts.pop(client, None)
