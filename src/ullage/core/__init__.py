"""The rooms that decide: no sockets, files, clock, randomness, threads, event loops, environment.

Time, ids, text counts and answers of servers come in as arguments, so every decision can be
replayed. The rooms and what each may know are listed in ARCHITECTURE.md.
"""
