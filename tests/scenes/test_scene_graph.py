"""Scene-graph F by hand, and of full descriptions."""

import pytest
from sample_scene import scene

from tellapart.scenes import Scenes
from tellapart.scenes.scene_graph import scene_graph_f


def test_scene_graph_f_by_hand() -> None:
    score = scene_graph_f("a red star left of a heart", scene())
    # Said: star, (star, red), heart, left of; all true. The scene has 2 + 2·3 + 1 + 1 = 10.
    assert score.precision == 1
    assert score.recall == 0.4
    assert score.f == pytest.approx(2 * 0.4 / 1.4)
    assert scene_graph_f("a heart right of a red star", scene()) == score
    assert scene_graph_f("a blue star", scene()).precision == 0.5
    assert scene_graph_f("", scene()).f == 0


@pytest.mark.parametrize("options", [{}, {"domain": "unseen", "frames": 8}])
def test_full_descriptions_have_the_whole_graph(options: dict) -> None:
    for one in Scenes(150, seed=23, **options):
        assert scene_graph_f(one.description, one).f == 1, one.description
