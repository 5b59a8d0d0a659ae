"""The log of a session: its events, and the state that follows from them.

`event` is one recorded fact and its text; `fold` derives the state of a session from them. Neither
knows a store, a dialect or a clock.
"""
