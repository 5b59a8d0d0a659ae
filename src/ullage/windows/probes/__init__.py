"""Live probes: what the server that serves the chat says of its window.

`probe` recognises the server and asks it; there is one module a server, each a generator that
yields what to ask. The room knows no HTTP client, no cache and no configuration.
"""

from ullage.windows.probes.found import Asking, Found, root
from ullage.windows.probes.recognise import probe

__all__ = ["Asking", "Found", "probe", "root"]
