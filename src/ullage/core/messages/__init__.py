"""The neutral view over the caller's own messages: fields, media, marks."""
