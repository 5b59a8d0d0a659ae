"""The bench of the guard proxy: a fake upstream, a driver of load, and the proxies beside it.

`make bench-proxy` runs `python -m bench.proxy`. The upstream and the driver are programs of their
own that need nothing but the standard library, and use uvloop where there is one.
"""
