"""One codec a dialect, and the table that reads errors. Codecs do not know each other."""
