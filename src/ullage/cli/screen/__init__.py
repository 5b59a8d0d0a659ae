"""The chat's own screen: the input line, and the text above it.

Only this package knows prompt_toolkit and rich; without them the chat uses plain lines.
"""
