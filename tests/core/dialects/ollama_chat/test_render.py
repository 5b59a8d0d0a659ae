"""What Ollama's chat API can carry of a person's message: text and images, and no file."""

from __future__ import annotations

from ullage.core.dialects.registry import find

FORM = find("ollama_chat").make_form()


def test_images_stand_beside_the_text_and_files_have_no_place() -> None:
    image = {"type": "image", "media_type": "image/png", "data": "aGk="}
    assert FORM.part(image) == {"type": "image", "data": "aGk="}
    assert FORM.part({"type": "file", "media_type": "application/pdf", "data": "aGk="}) is None
    assert FORM.part({"type": "text", "text": "look"}) == {"type": "text", "text": "look"}
    assert FORM.part({"type": "audio"}) is None
    parts = [FORM.part({"type": "text", "text": "look"}), FORM.part(image)]
    assert FORM.user(parts) == {"role": "user", "content": "look", "images": ["aGk="]}
