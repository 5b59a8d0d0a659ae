"""Agents and tools as they come from npm and PyPI, driven through `ullage serve --demo`."""
