"""What images take is learned from reports where nothing is published for a model."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.guard.learned import Learned
from ullage.core.messages.media import UNKNOWN_IMAGE, image_rule
from ullage.core.messages.transcript import Media
from ullage.core.tokens.calibration import Calibration, ReportedSize, learn
from ullage.core.tokens.images import (
    AGREED,
    UNKNOWN_AREA,
    LearnedImage,
    SeenImage,
    find_doubt,
    is_learnable,
    learn_image,
    make_rule,
    restore_image,
)

SEEN = st.builds(
    lambda best, more, area, seen: SeenImage(best, min(best + more, 6_404), area, seen),
    st.integers(1, 6_404),
    st.integers(0, 3_000),
    st.integers(1, UNKNOWN_AREA),
    st.integers(1, AGREED),
)
SIDES = st.integers(1, 8_000)


@given(SEEN, SIDES, SIDES)
def test_a_learned_rule_is_a_band_within_that_of_an_unknown_image(seen, width, height):
    low, best, high = LearnedImage("learned", seen=seen).size(Media("image", width, height))
    assert 0 < low <= best <= high <= UNKNOWN_IMAGE.unseen[2]
    assert low <= UNKNOWN_IMAGE.unseen[0]
    if width * height <= seen.area:
        assert high >= min(seen.most, UNKNOWN_IMAGE.unseen[2])


@given(SEEN, SEEN)
def test_what_is_learned_is_sane_and_a_report_that_agrees_moves_no_value(held, new):
    after = learn_image(held, new)
    assert after.is_sane
    assert learn_image(after, after).best == after.best
    if new == held:
        assert after.best == held.best
        assert after.seen == AGREED


def test_a_closer_report_takes_the_place_of_a_loose_one_and_not_the_other_way_round():
    loose, close = SeenImage(900, 2_400, 700_000), SeenImage(256, 288, 500_000)
    assert learn_image(loose, close) == close
    assert learn_image(close, loose) == close


def test_larger_images_may_take_as_much_more_as_they_are_larger_and_unseen_ones_anything():
    rule = LearnedImage("learned", seen=SeenImage(256, 256, 512 * 512, AGREED))
    seen = rule.size(Media("image", 512, 512))[2]
    assert rule.size(Media("image", 100, 100))[2] == seen
    assert rule.size(Media("image", 1024, 512))[2] == 2 * seen
    assert rule.size(Media("image"))[2] == UNKNOWN_IMAGE.unseen[2]


def test_a_published_rule_is_never_overruled():
    published = image_rule("gpt-4o")
    assert not is_learnable(published)
    assert make_rule(SeenImage(256, 256, 512 * 512), published) is published


def test_a_report_behind_images_teaches_no_ratio_of_text():
    image = SeenImage(256, 272, 512 * 512)
    first = learn(None, ReportedSize(300, 1_100, 0, image=image))
    assert first == Calibration(1.0, image=image)
    then = learn(first, ReportedSize(1_300, 1_000, 0))
    assert then is not None
    assert (then.ratio, then.image) == (1.3, image)


def test_a_server_that_is_another_leaves_what_is_known_of_images():
    """A ratio that is learned anew begins with it; the next image moves it."""
    image = SeenImage(256, 272, 512 * 512)
    held = Calibration(1.0, error=0.9, seen=3, image=image)
    after = learn(held, ReportedSize(9_000, 2_500, 0))
    assert after is not None
    assert after.seen < 3
    assert after.image == image


@pytest.mark.parametrize("held", [[0, 5, 5, 1], [9, 5, 5, 1], [5, 99_999, 5, 1], [5, 9, 0, 1]])
def test_what_no_report_can_have_taught_is_not_read(held):
    assert restore_image(held) is None
    data = json.loads(json.dumps(Learned(Calibration(1.2, seen=2)).to_dict()))
    data["calibration"]["image"] = held
    read = Learned.from_dict(data).calibration
    assert read is not None
    assert (read.ratio, read.image) == (1.2, None)


def test_it_goes_through_json_and_is_missing_in_what_an_earlier_version_wrote():
    learned = Learned(Calibration(1.0, image=SeenImage(256, 272, 512 * 512)), at=1.0)
    data = json.loads(json.dumps(learned.to_dict()))
    assert Learned.from_dict(data) == learned
    del data["calibration"]["image"]
    assert Learned.from_dict(data).calibration == Calibration(1.0)


def test_of_two_that_were_learned_apart_each_brings_what_the_other_lacks():
    text = Learned(Calibration(1.3, seen=4))
    images = Learned(Calibration(1.0, image=SeenImage(256, 272, 512 * 512)))
    both = Calibration(1.3, seen=4, image=SeenImage(256, 272, 512 * 512))
    assert text.merge(images).calibration == both
    assert images.merge(text).calibration == both
    assert text.merge(text) is text


def test_an_image_may_be_anything_where_nothing_is_published_and_is_no_riddle_elsewhere():
    parts = [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    messages = OpenAIChat().read([{"role": "user", "content": parts}]).messages
    low, best, high = UNKNOWN_IMAGE.unseen
    assert find_doubt(messages, UNKNOWN_IMAGE) == (best - low, 0)
    learned = LearnedImage("learned", seen=SeenImage(256, 256, UNKNOWN_AREA, AGREED))
    assert find_doubt(messages, learned) == (256 - low, high - 320)
    assert find_doubt(messages, image_rule("gpt-4o")) == (0, 0)
