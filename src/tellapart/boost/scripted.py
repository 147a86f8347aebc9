"""A backend that needs no model: on `scenes` it describes pictures and blends captions by grammar.

For trying boosting out, for tests, and for claims. Blending and adding work on the texts that they are given, as a
language model would; only the describer looks at the picture, of which it knows the truth, and gets some of it wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tellapart.boost.facts import Facts, Thing, facts_of, matched, say
from tellapart.boost.stages import NAMES, stages
from tellapart.boost.types import Answer, BackendError, Request
from tellapart.errors import UsageError
from tellapart.scenes import vocabulary as v
from tellapart.scenes.grammar import full_description
from tellapart.scenes.parser import parse_caption
from tellapart.scenes.random_stream import RandomStream
from tellapart.types import Item

if TYPE_CHECKING:
    from tellapart.scenes.world import Scene

_REFERENCE = re.compile(r"^Reference caption \d+: (.*)$", re.MULTILINE)
_CORRECT = re.compile(r"^Correct caption: (.*)$", re.MULTILINE)
_NEW = re.compile(r"^New noisy caption: (.*)$", re.MULTILINE)
VERSION = 1  # of the grammar: a new one makes old answers stale
_WEIGHTS = {"shape": 4.0}  # in saying which thing is which; any other slot counts 2


class Scripted:
    """``error``: how often the describer names a wrong shape, colour, size, texture, motion or ground, 0 to 1.

    Which ones depends on ``seed``, the picture's content and the question alone.
    """

    def __init__(self, error: float = 0.0, seed: int = 0) -> None:
        if not 0 <= error <= 1:
            raise UsageError(f"the scripted describer's error rate is {error:g}; expected a probability, such as 0.1")
        self.error, self.seed = float(error), int(seed)
        self.name = f"scripted:v{VERSION},error={self.error:g},seed={self.seed}"

    def complete(self, request: Request) -> Answer:
        """Raises `BackendError` for what is not of `scenes`, and for questions in another form than the prompts'."""
        question = request.messages[-1].text
        if request.picture is not None:
            text = self._describe(request)
        elif references := _REFERENCE.findall(question):
            text = blend(_of_scenes(references))
        elif (correct := _CORRECT.search(question)) and (new := _NEW.search(question)):
            text = add(*_of_scenes([correct[1], new[1]]))
        else:
            raise BackendError(
                "the scripted backend reads 'Reference caption N:', or 'Correct caption:' and 'New noisy caption:', "
                "and the question has neither; keep these lines in the prompt's last [user] section",
                fatal=True,
            )
        return Answer(text, sum(len(m.text.split()) for m in request.messages), len(text.split()))

    def _describe(self, request: Request) -> str:
        if (scene := request.truth) is None:
            line = "the scripted describer knows pictures of scenes alone; name a model with --mllm"
            raise BackendError(line, fatal=True)
        seed = (*(m.text for m in request.messages), request.temperature, request.seed)
        chance = RandomStream("describe", self.seed, scene.content_key(), *seed)
        return full_description(mistaken(scene, self.error, chance), chance)


def boost_scenes(items: Iterable[Item], error: float, seed: int = 0) -> list[dict[str, str]]:
    """The texts of every stage for each item, with the paper's prompts; in memory, for who needs no ledger."""
    backend = Scripted(error, seed)
    chosen, found = stages(NAMES, backend, backend), []
    for item in items:
        texts: dict[str, str] = {}
        for stage in chosen:
            texts[stage.name] = backend.complete(stage.build_request(item, texts)).text
        found.append(texts)
    return found


def mistaken(scene: Scene, error: float, chance: RandomStream) -> Scene:
    """The scene as a careless eye sees it: each value another one of the world with probability ``error``."""
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
    """All captions of one picture as one: what several say comes once. All of them count as true."""
    richest = sorted(map(facts_of, captions), key=_amount, reverse=True)
    whole = Facts()
    for named in (True, False):  # whether "a red thing" is none of the others shows once all of them are known
        for facts in richest:
            _take_in(whole, facts, named)
    return say(whole)


def _amount(facts: Facts) -> int:
    return sum(map(len, facts.things)) + len(facts.relations)


def _take_in(whole: Facts, facts: Facts, named: bool) -> None:
    """What a further caption says, put to what is known: new things with a name only, or those without as well.

    "A red thing" is new where it is none of the known ones; where it could be one of them it is left out.
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
    """How much speaks for two true captions meaning one thing; None where they contradict each other."""
    shared = one.keys() & other.keys()
    if not shared or _contradict(one, other):
        return None
    return sum(_WEIGHTS.get(slot, 2.0) for slot in shared)


def add(correct: str, new: str) -> str:
    """The correct caption with what only the new one says; where they contradict each other it is right."""
    ours, theirs = facts_of(correct), facts_of(new)
    meant = matched(ours, theirs, _alike, agreeing=2.0)
    whole = Facts([*ours.things], {}, ours.ground or theirs.ground, ours.number)
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
    """How much speaks for both being one thing, of which one caption may be wrong. Any thing is better than none."""
    total = 10.0
    for slot in ours.keys() & theirs.keys():
        weight = _WEIGHTS.get(slot, 2.0)
        total += weight if ours[slot][0] == theirs[slot][0] else -weight
    return max(total, 1.0)


def _of_scenes(captions: Sequence[str]) -> list[str]:
    """The captions, or a `BackendError` where most of their words are none of `scenes`."""
    readings = [parse_caption(caption) for caption in captions]
    if 2 * sum(len(reading.unknown) for reading in readings) > sum(len(reading.words) for reading in readings):
        raise BackendError(
            f"the scripted backend knows the words of scenes, and not '{captions[0][:60]}'; name a model with --llm",
            fatal=True,
        )
    return list(captions)
