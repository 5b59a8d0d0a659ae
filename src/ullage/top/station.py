"""The data of the terminal screen: sources of this machine, or a remote proxy.

Both return the same plain data, in the form of the pages' JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from ullage.core.errors import ConfigurationError
from ullage.live.source import NotPossible, UnknownConversation, Viewer
from ullage.live.values import LiveSession
from ullage.transport import HttpRequest

if TYPE_CHECKING:
    from ullage.live.desk import LiveDesk
    from ullage.transport import Transport

Data = Mapping[str, Any]


class Station(Protocol):
    """A provider of rows, and of all data about one of them."""

    async def list_rows(self) -> Sequence[LiveSession]:
        """Return all conversations."""
        ...

    async def read_detail(self, key: str) -> Data:
        """Return the data of one, in the form of its page; raises UllageError."""
        ...

    async def review(self, key: str, number: int) -> Data:
        """Return a compaction as a change, in the form of its page; raises UllageError."""
        ...

    async def aclose(self) -> None:
        """Release all resources."""
        ...


class Here:
    """The sources of this machine."""

    def __init__(self, desk: LiveDesk) -> None:
        self._desk = desk
        self._looked = False

    async def list_rows(self) -> Sequence[LiveSession]:
        """Return all conversations; the first call first reads all sources."""
        if not self._looked:
            self._looked = True
            await self._desk.look()
        self._desk.wake()
        return self._desk.feed.list_rows()

    async def read_detail(self, key: str) -> Data:
        """Return the data of a conversation."""
        return (await self._desk.read_detail(key, Viewer())).to_dict()

    async def review(self, key: str, number: int) -> Data:
        """Return a compaction as a change."""
        return (await self._desk.review(key, number, Viewer())).to_dict()

    async def aclose(self) -> None:
        """Close the sources."""
        await self._desk.aclose()


class There:
    """A proxy at a URL, read through its pages; `token` is sent to it."""

    def __init__(self, url: str, transport: Transport, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._transport = transport
        self._token = token

    async def list_rows(self) -> Sequence[LiveSession]:
        """Return the proxy's conversations; raises ConfigurationError if it does not list them."""
        told = await self._ask("/ullage/conversations")
        rows = told.get("conversations")
        if not isinstance(rows, list):
            raise ConfigurationError(f"{self._url} is no proxy of this ullage: it lists nothing")
        return [row for row in map(_read_row, rows) if row is not None]

    async def read_detail(self, key: str) -> Data:
        """Return the data of a conversation."""
        return await self._ask(f"/ullage/conversation?of={quote(key, safe='')}")

    async def review(self, key: str, number: int) -> Data:
        """Return a compaction as a change."""
        return await self._ask(f"/ullage/compaction?of={quote(key, safe='')}&number={number}")

    async def _ask(self, path: str) -> Data:
        asked = HttpRequest(f"{self._url}{path}", api_key=self._token)
        answer = await self._transport.aask(asked)
        said = answer.json() if answer.status else None
        told = said if isinstance(said, Mapping) else {}
        if answer.status == 200 and told:
            return told
        why = str(told.get("error") or answer.fault or "it does not answer")
        if answer.status == 404:
            raise UnknownConversation(why)
        if answer.status == 409:
            raise NotPossible(why)
        raise ConfigurationError(f"{self._url} ({answer.status or 'no answer'}): {why}")

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def _read_row(told: object) -> LiveSession | None:
    """Return a row that another version may have written: unknown fields are dropped."""
    if not isinstance(told, Mapping) or not (told.get("source") and told.get("id")):
        return None
    known = LiveSession.__dataclass_fields__
    return LiveSession(**{name: value for name, value in told.items() if name in known})
