"""Pages that show conversations live in a browser: of a proxy, or alone over logs and files."""
