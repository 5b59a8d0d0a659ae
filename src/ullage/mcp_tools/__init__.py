"""Tools for programs that cannot be proxied, by the Model Context Protocol (`ullage mcp`).

Each tool is a thin call of a library function, so that its numbers are those of the command line.
Settings, credentials and stores are handed in; nothing here is written or sent on.
"""
