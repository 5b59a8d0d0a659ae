"""Resolvers that ask: the server that serves the chat, provider listings, the bundled table.

`Resolver` gathers claims and hands them to `core.tokens.window.resolve`. It knows no conversation
and no policy.
"""

from ullage.windows.question import Question, read_window
from ullage.windows.resolver import Resolver, ResolverOptions

__all__ = ["Question", "Resolver", "ResolverOptions", "read_window"]
