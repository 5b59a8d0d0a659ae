"""What happened in a session, as events, and what follows from them.

`event` is one recorded fact and its text; `fold` derives the state of a session from them. Neither
knows a store, a dialect or a clock.
"""
