"""The stages of a request: each takes a frozen value and returns one.

`read -> replay -> measure -> decide -> compact -> view`: `core.guard.machine` calls them in this
order before a send, `core.guard.recovery` after a refusal. A stage that needs something from
outside is a generator that yields the need. No stage changes a value of another stage.
"""
