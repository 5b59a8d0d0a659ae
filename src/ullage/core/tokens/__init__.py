"""Sizes: counts, usage, windows, the gauge, budgets and cost. It knows no dialect and no strategy."""
