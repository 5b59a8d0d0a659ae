"""The guard in front of a server: any client, any language, one changed base URL.

It speaks what clients speak and passes it on; what is done to a request is `ullage.guard`'s.
"""
