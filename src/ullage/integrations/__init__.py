"""Adapters: the guard inside frameworks, one file each, over one mapping of their messages.

An adapter's file imports its framework, and nothing of this package imports an adapter. What is
done to a history, when, and what is learned is the guard's.
"""
