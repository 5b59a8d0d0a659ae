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
        self._loading = asyncio.Lock()

    def is_page(self, path: str) -> bool:
        """Tell whether a path is one of the pages'."""
        return paths.is_page(path)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        async with self._loading:
            if self._pages is None:
                self._pages = await asyncio.to_thread(_load, self._app)
                if self._ends:
                    self._pages.end_streams()
        await self._pages(scope, receive, send)

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
        if self._pages is not None:
            await self._pages.aclose()


def _load(app: App) -> LivePages:
    from ullage.cli.face import make_face

    return make_face(app)
