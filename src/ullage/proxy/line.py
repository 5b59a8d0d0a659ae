"""A line in which clients wait for turns, so that no client waits for all requests of another.

Each free place goes to the client whose last turn was longest ago. The module does not know
requests. For one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque


class FairLine:
    """Up to `places` turns at once; all others wait, client by client."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def length(self) -> int:
        """Number of waiting requests."""
        return sum(map(len, self._waiting.values()))

    async def enter(self, client: str, patience_s: float) -> None:
        """Wait for a turn; raises TimeoutError after `patience_s` seconds. `leave` ends it."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            async with asyncio.timeout(patience_s):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave()  # the turn came in the same moment
            else:
                self._give_up(client, turn)
            raise

    def leave(self) -> None:
        """Give the place to the next waiting request, or keep it free."""
        while self._waiting:
            client, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            if turns:
                self._waiting.move_to_end(client)
            else:
                del self._waiting[client]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _give_up(self, client: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(client)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[client]
