"""The exact listener picks the scene that a caption describes."""

import pytest
from sample_scene import scene

from tellapart.scenes import Object, Scene, Scenes, grammar
from tellapart.scenes.listener import listener_accuracy, listener_probabilities
from tellapart.utils.random_stream import RandomStream


def test_the_listener_picks_who_fits() -> None:
    target, swapped, moved, snowy = scene(), scene("blue", "red"), scene(star_x=103), scene(ground="snow")
    everyone = [target, swapped, moved, snowy]
    assert listener_probabilities("a red star left of a blue heart on the grass", everyone).tolist() == [1, 0, 0, 0]
    assert listener_probabilities("a red star", everyone) == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    assert listener_probabilities("a heart in the snow", everyone).tolist() == [0, 0, 0, 1]
    for nothing in ("", "a thing", "wombats of the world"):
        assert listener_probabilities(nothing, everyone).tolist() == [0.25] * 4
    with pytest.raises(ValueError, match="candidate"):
        listener_probabilities("a star", [])


def test_word_lists_do_not_win() -> None:
    target, swapped, green = scene(), scene("blue", "red"), scene("green")
    everyone = [target, swapped, green]
    bound = listener_probabilities("a red star and a blue heart", everyone)[0]
    listed = listener_probabilities("star heart red blue", everyone)[0]
    assert bound == 1
    assert listed == 0.5
    assert listener_probabilities("red blue green star", everyone).tolist() == pytest.approx([1 / 3] * 3)
    every_colour = "red blue green yellow orange purple black white pink brown gray turquoise"
    assert listener_probabilities(f"{every_colour} star", everyone)[0] == pytest.approx(1 / 3)
    # A wrong word bound outweighs the same right word hanging loose.
    assert listener_probabilities("a green star, red", everyone)[0] == 0


def test_a_loose_word_weighs_half() -> None:
    green = Scene("g", tuple(Object(s, c, "small", "plain", x, 64) for s, c, x in _GREEN), "sand", 0)
    red = Scene("r", tuple(Object(s, c, "small", t, x, 64) for s, c, t, x in _RED), "sand", 0)
    # One word bound to the star against two that hang loose.
    assert listener_probabilities("a green star, red striped", [green, red]).tolist() == [0.5, 0.5]
    assert listener_probabilities("a green star, red", [green, red]).tolist() == [1, 0]


_GREEN = (("star", "green", 25), ("heart", "blue", 103))


_RED = (("star", "blue", "plain", 25), ("heart", "red", "striped", 103))


def test_listener_accuracy_is_the_mean_probability_of_the_target() -> None:
    sets = [[scene(), scene("green")], [scene("blue", "red"), scene()]]
    mean, each = listener_accuracy(["a red star", "a star"], sets)
    assert each.tolist() == [1, 0.5]
    assert mean == 75
    assert listener_accuracy(["a red star", "a red star"], sets, targets=[0, 1])[0] == 100


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"domain": "alt"}, {"domain": "unseen"}, {"frames": 8}, {"family": 12}])
def test_full_descriptions_always_single_out_their_scene(options: dict) -> None:
    scenes = Scenes(1200, seed=21, **options)
    for number in range(0, len(scenes.families()), 2):
        family = scenes.family_of(number)
        for k, one in enumerate(family):
            text = one.description if k % 2 else grammar.full_description(one, RandomStream(number, k))
            assert listener_probabilities(text, family)[k] == 1, text
