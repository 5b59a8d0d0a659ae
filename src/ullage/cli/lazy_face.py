"""The pages of a proxy, loaded when the first of them is asked for: many proxies show none.

What draws them, and what knows the sessions of programs, takes some MB and a third of a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ullage.pages import paths

if TYPE_CHECKING:
    from ullage.pages.app import LivePages
    from ullage.proxy.app import App


class LazyFace:
    """Stands in for the pages of a proxy until they are loaded. For one event loop."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._pages: LivePages | None = None
        self._ends = False
        self._loading: asyncio.Task[LivePages] | None = None

    def is_page(self, path: str) -> bool:
        """Tell whether a path is one of the pages'."""
        return paths.is_page(path)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        pages = self._pages or await self._find_pages()
        await pages(scope, receive, send)

    async def _find_pages(self) -> LivePages:
        """Return the pages, loaded once: also where the first who asks does not wait for them."""
        if self._loading is None or (self._loading.done() and self._pages is None):
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> LivePages:
        self._pages = await asyncio.to_thread(_make_pages, self._app)
        if self._ends:
            self._pages.end_streams()
        return self._pages

    def end_streams(self) -> None:
        """Have the streams end at once, those of pages that are still to be loaded, too."""
        self._ends = True
        if self._pages is not None:
            self._pages.end_streams()

    def renew(self) -> None:
        """Have every viewer ask anew: who may see what was changed."""
        if self._pages is not None:
            self._pages.renew()

    async def aclose(self) -> None:
        """Let go of what the pages hold."""
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._pages is not None:
            await self._pages.aclose()


def _make_pages(app: App) -> LivePages:
    from ullage.cli.face import make_face

    return make_face(app)
