"""Sizes: counts, usage, windows, the gauge, budgets and cost, without dialects or strategies."""
