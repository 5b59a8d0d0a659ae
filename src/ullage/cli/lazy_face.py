"""The pages of a proxy, loaded with the first request for one: many proxies show none.

Loading the code that draws them and reads programs' sessions takes some MB and a third of a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ullage.pages import paths

if TYPE_CHECKING:
    from ullage.pages.app import LivePages
    from ullage.proxy.app import App


class LazyFace:
    """Replaces the pages of a proxy until they are loaded. For one event loop."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._pages: LivePages | None = None
        self._ends = False
        self._loading: asyncio.Task[LivePages] | None = None

    def is_page(self, path: str) -> bool:
        """Tell whether a path belongs to the pages."""
        return paths.is_page(path)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        pages = self._pages or await self._find_pages()
        await pages(scope, receive, send)

    async def _find_pages(self) -> LivePages:
        """Return the pages, loaded once, even if the first client does not wait for them."""
        if self._loading is None or (self._loading.done() and self._pages is None):
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> LivePages:
        self._pages = await asyncio.to_thread(_make_pages, self._app)
        if self._ends:
            self._pages.end_streams()
        return self._pages

    def end_streams(self) -> None:
        """End the streams at once, including those of pages that are still being loaded."""
        self._ends = True
        if self._pages is not None:
            self._pages.end_streams()

    def renew(self) -> None:
        """Make every viewer ask anew, since the access rights have changed."""
        if self._pages is not None:
            self._pages.renew()

    async def aclose(self) -> None:
        """Release the resources of the pages."""
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._pages is not None:
            await self._pages.aclose()


def _make_pages(app: App) -> LivePages:
    from ullage.cli.face import make_face

    return make_face(app)
