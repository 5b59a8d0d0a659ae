"""Pages that show conversations live in a browser, for a proxy, or for logs and files alone."""
