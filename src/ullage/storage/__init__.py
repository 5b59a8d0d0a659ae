"""Where checkpoints live. First store: memory; durable ones come with the event log."""

from ullage.storage.memory import MemoryCheckpoints

__all__ = ["MemoryCheckpoints"]
