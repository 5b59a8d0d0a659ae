"""A real llama.cpp server and a small real model, for the demo, for tests and for experiments.

The package of the `embedded` extra. It knows nothing of conversations, and is imported only on
request. Linux only: the server comes from the `xllamacpp` wheel.
"""

from ullage.embedded.launch import Launch
from ullage.embedded.model import fetch, find_cached, smollm2
from ullage.embedded.server import Server, demand_engine

__all__ = ["Launch", "Server", "demand_engine", "fetch", "find_cached", "smollm2"]
