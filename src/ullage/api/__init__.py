"""The plain functions: count, window, compact, context, recall, tally, wrap."""
