"""Servers, fakes and fixtures of the suite: a tiny model, real databases, a real browser, faults.

The modules are imported one by one, because each needs other packages.
"""
