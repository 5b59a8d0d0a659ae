"""Resolvers that ask: the server that serves the chat, and the bundled table.

`Resolver` gathers claims and hands them to `core.window.resolve`. It knows no conversation and
no policy.
"""

from ullage.windows.resolver import Question, Resolver

__all__ = ["Question", "Resolver"]
