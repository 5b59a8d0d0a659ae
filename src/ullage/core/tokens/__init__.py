"""Sizes: counts, usage, windows, the gauge, budgets, cost. It knows no dialect, no strategy."""
