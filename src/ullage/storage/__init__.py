"""Where checkpoints and conversations live. First store: memory; durable ones come with the log."""

from ullage.storage.memory import MemoryCheckpoints, MemoryConversations

__all__ = ["MemoryCheckpoints", "MemoryConversations"]
