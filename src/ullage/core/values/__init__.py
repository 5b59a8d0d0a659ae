"""Basics of our own values: how they are shown, report progress and refuse to be pickled."""
