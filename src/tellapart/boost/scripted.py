"""A backend without a model that describes `scenes` and blends captions using a grammar.

It is meant for trials, tests and replication. Like a language model, blending and adding use only their input texts.
Only the describer sees the picture; it knows the ground truth, and gets some of it wrong on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tellapart.boost.scene_facts import SceneFacts, Thing, facts_of, matched, say
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
_WEIGHTS = {"shape": 4.0}  # weights for matching things; other slots have weight 2


class Scripted:
    """The scripted backend. ``error``: probability of a wrong shape, colour, size, texture, motion or background, 0 to
    1.

    The errors depend only on ``seed``, the picture's content and the question.
    """

    def __init__(self, error: float = 0.0, seed: int = 0) -> None:
        if not 0 <= error <= 1:
            raise UsageError(f"the scripted describer's error rate must be a probability such as 0.1, got {error:g}")
        self.error, self.seed = float(error), int(seed)
        self.name = f"scripted:v{VERSION},error={self.error:g},seed={self.seed}"

    def complete(self, request: Request) -> Answer:
        """Answers a request. Raises `BackendError` for data that are not from `scenes`, and for unknown questions."""
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
    """Returns each item's texts by stage, using the paper's prompts, in memory and without a ledger."""
    backend = Scripted(error, seed)
    chosen, found = stages(STAGE_NAMES, backend, backend), []
    for item in items:
        texts: dict[str, str] = {}
        for stage in chosen:
            texts[stage.name] = backend.complete(stage.build_request(item, texts)).text
        found.append(texts)
    return found


def mistaken(scene: Scene, error: float, chance: RandomStream) -> Scene:
    """Returns a copy of the scene in which each value is wrong with probability ``error``."""
    shapes = v.UNSEEN_SHAPES if scene.objects[0].shape in v.UNSEEN_SHAPES else v.SHAPES
    options = {"shape": shapes, "colour": v.COLOURS, "size": v.SIZES, "texture": v.TEXTURES, "motion": v.MOTIONS}

    def seen(slot: str, value: str, all_of_them: Sequence[str]) -> str:
        return chance.choice([other for other in all_of_them if other != value]) if chance.bernoulli(error) else value

    objects = []
    for thing in scene.objects:
        given = {slot: getattr(thing, slot) for slot in options if getattr(thing, slot)}
        wrong: dict[str, Any] = {slot: seen(slot, value, tuple(options[slot])) for slot, value in given.items()}
        objects.append(replace(thing, **wrong))
    return replace(scene, objects=tuple(objects), ground=seen("ground", scene.ground, tuple(v.GROUNDS)))


def blend(captions: Sequence[str]) -> str:
    """Merges all captions of one picture into one without repetitions. All of them are assumed to be true."""
    richest = sorted(map(facts_of, captions), key=_amount, reverse=True)
    whole = SceneFacts()
    for named in (True, False):  # "a red thing" can be resolved only when all others are known
        for facts in richest:
            _take_in(whole, facts, named)
    return say(whole)


def _amount(facts: SceneFacts) -> int:
    return sum(map(len, facts.things)) + len(facts.relations)


def _take_in(whole: SceneFacts, facts: SceneFacts, named: bool) -> None:
    """Adds the facts of another caption. ``named``: whether to add new things only if they have a name.

    "A red thing" is new if it matches none of the known things; if it could be one of them, it is left out.
    """
    meant = matched(facts, whole, _same_thing, agreeing=1.0)
    others = [thing for number, thing in enumerate(whole.things) if number not in meant]
    for at, thing in enumerate(facts.things):
        new = "shape" in thing if named else thing and all(_contradict(thing, other) for other in others)
        if meant[at] < 0 and new:
            meant[at] = len(whole.things)
            whole.things.append({})
        if meant[at] >= 0:
            whole.things[meant[at]] = {**thing, **whole.things[meant[at]]}
    for (i, j), relation in facts.relations.items():
        if meant[i] >= 0 and meant[j] >= 0:
            whole.relate(meant[i], meant[j], relation)
    whole.ground = whole.ground or facts.ground
    whole.number = max(whole.number, facts.number)


def _contradict(one: Thing, other: Thing) -> bool:
    return any(one[slot][0] != other[slot][0] for slot in one.keys() & other.keys())


def _same_thing(one: Thing, other: Thing) -> float | None:
    """Scores whether two true captions refer to the same thing; None if they contradict each other."""
    shared = one.keys() & other.keys()
    if not shared or _contradict(one, other):
        return None
    return sum(_WEIGHTS.get(slot, 2.0) for slot in shared)


def add(correct: str, new: str) -> str:
    """Adds the facts of the new caption to the correct one, which takes precedence if they contradict each other."""
    ours, theirs = facts_of(correct), facts_of(new)
    meant = matched(ours, theirs, _alike, agreeing=2.0)
    whole = SceneFacts([*ours.things], {}, ours.ground or theirs.ground, ours.number)
    place = {number: at for at, number in enumerate(meant) if number >= 0}
    for number, thing in enumerate(theirs.things):
        if number in place:
            whole.things[place[number]] = {**thing, **whole.things[place[number]]}
        else:
            place[number] = len(whole.things)
            whole.things.append(thing)
    for (i, j), relation in ours.relations.items():
        whole.relate(i, j, relation)
    for (i, j), relation in theirs.relations.items():
        whole.relate(place[i], place[j], relation)
    return say(whole)


def _alike(ours: Thing, theirs: Thing) -> float:
    """Scores how likely two things are the same, since one caption can be wrong. Any match is better than none."""
    total = 10.0
    for slot in ours.keys() & theirs.keys():
        weight = _WEIGHTS.get(slot, 2.0)
        total += weight if ours[slot][0] == theirs[slot][0] else -weight
    return max(total, 1.0)


def _of_scenes(captions: Sequence[str]) -> list[str]:
    """Returns the captions unchanged. Raises `BackendError` if most of their words are unknown in `scenes`."""
    readings = [parse_caption(caption) for caption in captions]
    if 2 * sum(len(reading.unknown) for reading in readings) > sum(len(reading.words) for reading in readings):
        raise BackendError(
            f"the scripted backend only supports captions of scenes, got '{captions[0][:60]}'; "
            "specify a model with --llm",
            fatal=True,
        )
    return list(captions)
