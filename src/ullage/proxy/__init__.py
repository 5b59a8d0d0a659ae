"""The guard in front of a server: any client, any language, one changed base URL.

It speaks the dialect of the client and passes requests on. `ullage.guard` decides what to do with a
request.
"""
