"""A backend that answers requests about `scenes` with a grammar instead of a model.

It is meant for trials, tests and replication. Blending and adding use only their input texts, as a language model
would. Only the describer sees the picture. It knows the ground truth and gets some of it wrong on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tellapart.boost.scene_merging import add, blend
from tellapart.boost.types import Answer, BackendError, Request
from tellapart.errors import UsageError
from tellapart.scenes import vocabulary as v
from tellapart.scenes.grammar import full_description
from tellapart.scenes.parser import parse_caption
from tellapart.scenes.world import Scene
from tellapart.utils.random_stream import RandomStream

_REFERENCE = re.compile(r"^Reference caption \d+: (.*)$", re.MULTILINE)
_CORRECT = re.compile(r"^Correct caption: (.*)$", re.MULTILINE)
_NEW = re.compile(r"^New noisy caption: (.*)$", re.MULTILINE)
VERSION = 1  # version of the grammar; changing it invalidates old answers


class Scripted:
    """The scripted backend. ``error``: probability, from 0 to 1, that a shape, colour, size, texture, motion or
    background is wrong.

    The errors depend only on ``seed``, the picture's content and the question.
    """

    def __init__(self, error: float = 0.0, seed: int = 0) -> None:
        if not 0 <= error <= 1:
            raise UsageError(f"the scripted describer's error rate must be a probability such as 0.1, got {error:g}")
        self.error, self.seed = float(error), int(seed)
        self.name = f"scripted:v{VERSION},error={self.error:g},seed={self.seed}"

    def complete(self, request: Request) -> Answer:
        """Answers a request. Raises `BackendError` if the data are not from `scenes` or the question is unknown."""
        question = request.messages[-1].text
        if request.picture is not None:
            text = self._describe(request)
        elif references := _REFERENCE.findall(question):
            text = blend(_of_scenes(references))
        elif (correct := _CORRECT.search(question)) and (new := _NEW.search(question)):
            text = add(*_of_scenes([correct[1], new[1]]))
        else:
            raise BackendError(
                "the scripted backend requires 'Reference caption N:', or 'Correct caption:' and "
                "'New noisy caption:', in the question; keep these lines in the prompt's last "
                "[user] section",
                fatal=True,
            )
        return Answer(text, sum(len(m.text.split()) for m in request.messages), len(text.split()))

    def _describe(self, request: Request) -> str:
        if (scene := request.truth) is None:
            line = "the scripted describer only supports pictures of scenes; specify a model with --mllm"
            raise BackendError(line, fatal=True)
        seed = (*(m.text for m in request.messages), request.temperature, request.seed)
        chance = RandomStream("describe", self.seed, scene.content_key(), *seed)
        return full_description(mistaken(scene, self.error, chance), chance)


def mistaken(scene: Scene, error: float, chance: RandomStream) -> Scene:
    """Returns a copy of the scene in which each value is wrong with probability ``error``."""
    shapes = v.UNSEEN_SHAPES if scene.objects[0].shape in v.UNSEEN_SHAPES else v.SHAPES
    options = {"shape": shapes, "colour": v.COLOURS, "size": v.SIZES, "texture": v.TEXTURES, "motion": v.MOTIONS}

    def seen(value: str, possible: Iterable[str]) -> str:
        return chance.choice([other for other in possible if other != value]) if chance.bernoulli(error) else value

    objects = []
    for thing in scene.objects:
        wrong: dict[str, Any] = {}
        for slot, possible in options.items():
            if value := getattr(thing, slot):
                wrong[slot] = seen(value, possible)
        objects.append(replace(thing, **wrong))
    return replace(scene, objects=tuple(objects), ground=seen(scene.ground, v.GROUNDS))


def _of_scenes(captions: Sequence[str]) -> list[str]:
    """Returns the captions unchanged. Raises `BackendError` if `scenes` does not know most of their words."""
    parsed = [parse_caption(caption) for caption in captions]
    if 2 * sum(len(each.unknown) for each in parsed) > sum(len(each.words) for each in parsed):
        raise BackendError(
            f"the scripted backend only supports captions of scenes, got '{captions[0][:60]}'; "
            "specify a model with --llm",
            fatal=True,
        )
    return list(captions)
