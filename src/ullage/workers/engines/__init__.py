"""Engines of queues, one file each: only that file imports its engine."""
