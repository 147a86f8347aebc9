"""A backend that describes `scenes` and blends captions with a grammar instead of a model.

It is meant for trials, tests and replication. Blending and adding use only their input texts, as a language model
would. Only the describer sees the picture. It knows the ground truth and gets some of it wrong on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tellapart.boost.scene_facts import SceneFacts, Thing, facts_of, matched
from tellapart.boost.scene_sentence import say
from tellapart.boost.stages import STAGE_NAMES, stages
from tellapart.boost.types import Answer, BackendError, Request
from tellapart.errors import UsageError
from tellapart.scenes import vocabulary as v
from tellapart.scenes.grammar import full_description
from tellapart.scenes.parser import parse_caption
from tellapart.scenes.world import Scene
from tellapart.types import Item
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


def boost_scenes(items: Iterable[Item], error: float, seed: int = 0) -> list[dict[str, str]]:
    """Boosts items with the paper's prompts, in memory and without a ledger. Returns each item's texts by stage."""
    backend = Scripted(error, seed)
    chosen = stages(STAGE_NAMES, backend, backend)
    boosted: list[dict[str, str]] = []
    for item in items:
        boosted.append({})
        for stage in chosen:
            boosted[-1][stage.name] = backend.complete(stage.build_request(item, boosted[-1])).text
    return boosted


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


def blend(captions: Sequence[str]) -> str:
    """Merges all captions of one picture into one caption without repetitions. Assumes that all captions are true."""
    facts = [facts_of(caption) for caption in captions]
    facts.sort(key=lambda each: sum(map(len, each.things)) + len(each.relations), reverse=True)
    whole = SceneFacts()
    for named in (True, False):  # "a red thing" can be resolved only when all other things are known
        for each in facts:
            _take_in(whole, each, named)
    return say(whole)


def _take_in(whole: SceneFacts, facts: SceneFacts, named: bool) -> None:
    """Adds the facts of another caption. ``named``: whether to add new things only if they have a name.

    "A red thing" is new if it contradicts every known thing that is still unmatched. Otherwise, it is left out.
    """
    meant = matched(facts, whole, _same_thing, agreeing=1.0)
    others = [thing for number, thing in enumerate(whole.things) if number not in meant]
    for at, thing in enumerate(facts.things):
        new = "shape" in thing if named else thing and all(_contradict(thing, other) for other in others)
        if meant[at] < 0 and new:
            meant[at] = len(whole.things)
            whole.things.append({})
        if meant[at] >= 0:
            whole.things[meant[at]] = thing | whole.things[meant[at]]
    _relate(whole, facts, meant)
    whole.ground = whole.ground or facts.ground
    whole.number = max(whole.number, facts.number)


def _relate(whole: SceneFacts, facts: SceneFacts, meant: Sequence[int]) -> None:
    """Adds the relations in ``facts`` to ``whole``. ``meant`` maps the things in ``facts`` to those in ``whole``."""
    for (i, j), relation in facts.relations.items():
        if min(meant[i], meant[j]) >= 0:
            whole.relate(meant[i], meant[j], relation)


def add(correct: str, new: str) -> str:
    """Adds the facts of the new caption to the correct one, which takes precedence if they contradict each other."""
    whole, theirs = facts_of(correct), facts_of(new)
    meant = [-1] * len(theirs.things)
    for at, number in enumerate(matched(whole, theirs, _alike, agreeing=2.0)):
        if number >= 0:
            meant[number] = at
    for number, thing in enumerate(theirs.things):
        if meant[number] < 0:
            meant[number] = len(whole.things)
            whole.things.append({})
        whole.things[meant[number]] = thing | whole.things[meant[number]]
    _relate(whole, theirs, meant)
    whole.ground = whole.ground or theirs.ground
    return say(whole)


def _same_thing(one: Thing, other: Thing) -> float | None:
    """Scores whether things in two true captions are the same. Returns None if they share no slot or contradict each
    other.
    """
    shared = one.keys() & other.keys()
    return sum(map(_weight, shared)) if shared and not _contradict(one, other) else None


def _alike(ours: Thing, theirs: Thing) -> float:
    """Scores how likely two things are the same if one caption can be wrong. Even the worst match has a positive score,
    so it is better than no match.
    """
    shared = ours.keys() & theirs.keys()
    return max(10.0 + sum(_weight(slot) * (1 if ours[slot][0] == theirs[slot][0] else -1) for slot in shared), 1.0)


def _weight(slot: str) -> float:
    return 4.0 if slot == "shape" else 2.0


def _contradict(one: Thing, other: Thing) -> bool:
    return any(one[slot][0] != other[slot][0] for slot in one.keys() & other.keys())


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
