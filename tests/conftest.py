"""Fixtures for the whole suite."""

pytest_plugins = ["ullage.testing.fixtures"]
