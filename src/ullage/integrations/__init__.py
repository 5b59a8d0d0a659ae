"""Adapters that put the guard inside frameworks, one file each, all based on one message mapping.

An adapter's file imports its framework. Nothing else in this package imports an adapter. The guard
decides what to change in a history and when, and what to learn from a response.
"""
