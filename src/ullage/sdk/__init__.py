"""Support for the official SDKs of providers: their streams and exceptions, recognised by shape."""
