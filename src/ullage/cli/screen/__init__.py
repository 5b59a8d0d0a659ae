"""The chat's own screen: what is drawn above the line that is typed, and that line.

The only place that knows prompt_toolkit and rich; without them the chat goes by plain lines.
"""
