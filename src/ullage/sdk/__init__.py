"""What the official SDKs of providers need: their streams and their exceptions, met by shape."""
