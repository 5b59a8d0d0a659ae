"""What an upstream sends at once is taken in pieces: a client that does not read holds little."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ullage.config.serving import Serve, Upstream
from ullage.proxy.upstream import PIECE, AiohttpSender, Sent

WHOLE = b"x" * (20 * PIECE)


async def answer_at_once(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(body=WHOLE)


def test_an_answer_is_taken_in_pieces_and_whole():
    async def run() -> list[bytes]:
        app = web.Application()
        app.router.add_post("/", answer_at_once)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        sender = AiohttpSender(Serve((Upstream("main", f"http://127.0.0.1:{port}"),)))
        try:
            response = await sender.send(Sent("POST", f"http://127.0.0.1:{port}/", (), b"{}"))
            pieces = []
            async for piece in response.chunks():
                await asyncio.sleep(0.002)  # a reader who lets it come
                pieces.append(piece)
            await response.aclose()
            return pieces
        finally:
            await sender.aclose()
            await runner.cleanup()

    pieces = asyncio.run(run())
    assert b"".join(pieces) == WHOLE
    assert max(map(len, pieces)) <= PIECE
