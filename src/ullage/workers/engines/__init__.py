"""Engines of queues, one file each: the only one that imports its engine."""
