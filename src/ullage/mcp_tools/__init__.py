"""Tools for programs that cannot use the proxy, by the Model Context Protocol (`ullage mcp`).

Each tool only calls a library function, so its numbers are those of the command line. The caller
passes in settings, credentials and stores. Nothing here writes or sends data.
"""
