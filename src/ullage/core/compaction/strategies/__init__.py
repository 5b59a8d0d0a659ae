"""Strategies, one file each: they return edits for a situation, call no model and do no I/O.

They do not know each other; `core.compaction.plan` orders them by the rungs of the policy.
"""
