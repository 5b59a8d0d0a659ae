"""The neutral view over the caller's own messages, and what one reads of them: fields, media, marks."""
