"""Strategies, one file each: they return edits for a situation, never call a model, never do I/O.

Strategies do not know each other; `core.compaction` orders them by the policy's rungs.
"""
