"""A web server that ends in order: it announces the end, takes nothing new, then ends.

uvicorn closes its socket at once, and with it connections that are not yet accepted, or whose
request is still on its way. A load balancer counts those as failed requests. The module does not
know requests.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Sequence
from types import FrameType

import uvicorn
from uvicorn.server import ServerState

from ullage.cli.listening import STANDARD, Bounded, ConnectionLimits


class Connections(ServerState):
    """The connections of a server; with `is_leaving`, each closes after its next answer."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self.is_leaving = False
        self.limits = limits


class LeavingServer(uvicorn.Server):
    """A server that continues for `leave_s` seconds after SIGTERM, so that balancers can turn away.

    A second signal, or Ctrl-C, ends that time at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        leave_s: float = 0.0,
        limits: ConnectionLimits = STANDARD,
    ) -> None:
        super().__init__(config)
        self.server_state: Connections = Connections(limits)
        self._leave_s = leave_s
        self._until: float | None = None

    @property
    def is_leaving(self) -> bool:
        """True if the process is about to end."""
        return self.server_state.is_leaving or self.should_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to leave, or end."""
        if sig == signal.SIGTERM and self._leave_s and self._until is None:
            self._until = time.monotonic() + self._leave_s
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Tell whether it is time to end; connections are told before."""
        if self._until is not None:
            if not self.server_state.is_leaving:
                self._leave()
            self.should_exit |= time.monotonic() >= self._until
        return await super().on_tick(counter)

    def _leave(self) -> None:
        self.server_state.is_leaving = True
        for connection in self.server_state.connections:
            if isinstance(connection, Bounded):
                connection.leave()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the waiting connections, close the sockets, and let answers finish."""
        self.server_state.is_leaving = True
        waiting = [one for listening in sockets or () for one in _accept_all(listening)]
        for server in self.servers:
            server.close()
        await self._take(waiting)
        await super().shutdown(sockets)

    async def _take(self, waiting: Sequence[socket.socket]) -> None:
        """Serve connections that the event loop had not yet accepted."""
        loop, config = asyncio.get_running_loop(), self.config

        def make_protocol() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn makes it
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        for one in waiting:
            await loop.connect_accepted_socket(make_protocol, one)


def _accept_all(listening: socket.socket) -> list[socket.socket]:
    """Return the waiting connections, which the system would reset with the closing socket."""
    found = list[socket.socket]()
    while True:
        try:
            listening.setblocking(False)
            one, _ = listening.accept()
        except OSError:  # no connection waits, or it gave up, or the socket is closed
            return found
        one.setblocking(False)
        found.append(one)
