"""The plain functions: count, window, compact, context, recall, search, tally, wrap."""
