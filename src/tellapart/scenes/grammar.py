"""Generates references and full descriptions of a scene. Every sentence is true of the scene."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

from tellapart.language.inflection import with_article
from tellapart.scenes import vocabulary as v
from tellapart.scenes.ground_truth import SceneTruth
from tellapart.scenes.objects import Object
from tellapart.scenes.relations import INVERSE, between, holds, natural, reading_order
from tellapart.scenes.word_forms import participle, plural
from tellapart.utils.random_stream import RandomStream

T = TypeVar("T")
_ALT_SYNONYM_RATE = 0.65
"""The probability that alt-text uses a word from `vocabulary.ALT_WORDS`, if there is one."""


_USUAL_DETAIL = 0.3
# The probabilities that `_cocolike` uses at this detail. They were chosen only to match the statistics of COCO's
# references (tools/reference_statistics.py): 10.4 ± 2.4 words, an adjective in half of the references, and a CIDEr-D of
# 89 for one reference against four others.
_SALIENT_FIRST, _SECOND, _THIRD, _KIND, _STRIKING, _OTHER, _SAME_SYNONYM = 0.75, 0.99, 0.58, 0.9, 0.32, 0.05, 0.1


def describe(scene: SceneTruth, rng: RandomStream, detail: float) -> str:
    """Generates one reference in the style of the scene's domain.

    At detail 0, returns only the gist ("a shape on the grass"); otherwise, returns only the gist with probability 0.3 ·
    (1 − min(1, 2·detail)). All other references usually mention the background, and at random mention

    - each colour, size, texture and relation with probability ``detail``; default values, such as a medium size, with
      ``detail`` squared,
    - an object's kind with probability min(1, 2·detail),
    - each additional object with probability ``detail`` to the power of 1.5.

    At detail 1, everything is mentioned. The domain ``cocolike`` has its own probabilities (see `_cocolike`).
    """
    if detail and scene.domain == "cocolike":
        return _cocolike(scene, rng, detail / _USUAL_DETAIL)
    if not detail or rng.bernoulli(0.3 * (1 - min(1.0, 2 * detail))):
        gist = _gist(scene, rng)
        return _alt_dress(scene, gist, rng) if scene.domain == "alt" else gist
    if scene.domain == "alt":
        return _alt(scene, rng, detail)
    return _plain(scene, rng, detail)


class _Plainest(RandomStream):
    """Chooses the first option everywhere, for the plainest wording."""

    def bernoulli(self, probability: float) -> bool:
        return False

    def choice(self, options: Sequence[T]) -> T:
        return options[0]

    zipf_choice = choice


_PLAINEST = _Plainest()  # has no state, because it draws no numbers


def full_description(scene: SceneTruth, rng: RandomStream | None = None) -> str:
    """Describes every object with every attribute, the chain of relations and the background. The description is false
    of every look-alike.

    If ``rng`` is given, returns a paraphrase with other synonyms, another order and another sentence frame. Otherwise,
    uses the first word for everything. A picture's description has 25 to 45 words, a clip's has up to 60.
    """
    rng = rng or _PLAINEST
    order = reading_order(scene.objects)
    if rng.bernoulli(0.5):
        order.reverse()
    names = [_full_name(scene, scene.objects[i], rng) for i in order]
    text = names[0]
    for place, (i, j) in enumerate(itertools.pairwise(order)):
        phrases = v.RELATIONS[_linked(scene, i, j)]
        if len(order) == 4:
            phrases = tuple(p for p in phrases if len(p.split()) <= 2) or phrases[:1]
        verb = rng.choice(_verbs(scene)[:4])
        lead = rng.choice(("is", verb) if place == 0 and len(order) > 2 else ("which is", f"that {verb}"))
        text += f" {lead} {rng.zipf_choice(phrases)} {names[place + 1]}"
    return _framed(text, rng.zipf_choice(v.GROUNDS[scene.ground]), scene, rng)


def _full_name(scene: SceneTruth, thing: Object, rng: RandomStream) -> str:
    """Returns a phrase with every attribute of an object, such as "a small red plain star"."""

    def named(slot: str) -> str:
        return rng.zipf_choice(v.WORDS[slot][getattr(thing, slot)])

    size, colour, texture = named("size"), named("colour"), named("texture")
    adjectives = (texture, colour) if rng.bernoulli(0.2) else (colour, texture)
    phrase = with_article(" ".join((size, *adjectives, named("shape"))))
    if scene.length == 1:
        return phrase
    motion = named("motion")
    return f"{phrase} {participle(motion)}" if rng.bernoulli(0.3) else f"{phrase} that {motion}"


def paraphrases(scene: SceneTruth, count: int, seed: int = 0) -> tuple[str, ...]:
    """Returns ``count`` different full descriptions. Raises ValueError if there are not that many."""
    found: dict[str, None] = {}
    for turn in range(40 * count):
        found.setdefault(full_description(scene, RandomStream("paraphrase", scene.id, seed, turn)))
        if len(found) == count:
            return tuple(found)
    raise ValueError(f"expected {count} different descriptions of {scene.id}, found {len(found)}")


def _verbs(scene: SceneTruth) -> tuple[str, ...]:
    # Objects in a clip may move, so verbs such as "sits" do not apply.
    return v.VERBS if scene.length == 1 else v.CLIP_VERBS


def _synonym(scene: SceneTruth, kind: str, value: str, rng: RandomStream) -> str:
    alt_words = v.ALT_WORDS[kind].get(value) if scene.domain == "alt" and kind in v.ALT_WORDS else None
    return rng.zipf_choice(alt_words if alt_words and rng.bernoulli(_ALT_SYNONYM_RATE) else v.WORDS[kind][value])


def _generic(scene: SceneTruth, rng: RandomStream) -> str:
    return rng.zipf_choice(v.ALT_GENERIC if scene.domain == "alt" else v.GENERIC)


def _noun_phrase(scene: SceneTruth, thing: Object, rng: RandomStream, detail: float, *, bare: bool = False) -> str:
    """Returns a phrase such as "a small red star" with the attributes that ``rng`` draws. ``bare`` omits article and
    motion.
    """

    def named(slot: str) -> str:
        value = getattr(thing, slot)
        odds = detail * detail if v.UNMARKED.get(slot) == value else detail
        return _synonym(scene, slot, value, rng) if rng.bernoulli(odds) else ""

    size, colour, texture = named("size"), named("colour"), named("texture")
    adjectives = (texture, colour) if rng.bernoulli(0.2) else (colour, texture)
    has_kind = rng.bernoulli(min(1.0, 2 * detail))
    noun = _synonym(scene, "shape", thing.shape, rng) if has_kind else _generic(scene, rng)
    phrase = " ".join(word for word in (size, *adjectives, noun) if word)
    if bare:
        return phrase
    phrase = with_article(phrase)
    motion = named("motion") if scene.length > 1 else ""
    if motion:
        phrase += f" {participle(motion)}" if rng.bernoulli(0.3) else f" that {motion}"
    return phrase


def _linked(scene: SceneTruth, i: int, j: int) -> str:
    """Returns the relation of i to j: the chain's relation if they are neighbours in the chain, otherwise the natural
    relation.
    """
    for kind, a, b in scene.chain:
        if (a, b) == (i, j):
            return kind
        if (b, a) == (i, j):
            return INVERSE[kind]
    return natural(scene.objects, i, j)


def _framed(text: str, ground: str, scene: SceneTruth, rng: RandomStream) -> str:
    """Puts the chain into a sentence with the background.

    Scenes with two objects get a longer sentence template than scenes with four objects, so that lengths are similar.
    """
    kind = "clip" if scene.length > 1 else "picture"
    count = len(scene.objects)
    if count == 4:
        return f"{text}, all {ground}"
    if count == 3 and rng.bernoulli(0.3):
        return f"in this {kind} {ground} {text}"
    if count == 2:
        openers = (f"in this {kind} there is", f"here in this {kind} we see", "what we can see here is")
        closers = (f"and the whole scene is {ground}", f"and both of them are placed {ground}")
    else:
        openers = (f"in this {kind}", "there", "here")
        closers = (f"and everything is {ground}", f"and all of them are {ground}")
    return f"{rng.zipf_choice(openers)} {text} {rng.zipf_choice(closers)}"


def _gist(scene: SceneTruth, rng: RandomStream) -> str:
    """Returns a sentence without details that mentions the number of things, or one thing, and perhaps the
    background.
    """
    count = len(scene.objects)
    noun = _generic(scene, rng)
    kind = rng.randrange(4)
    if kind < 2:
        text = with_article(noun) if scene.domain != "alt" else noun
    elif kind == 2:
        number = {2: "two", 3: "three", 4: "four"}[count]
        text = "a pair of" if count == 2 and rng.bernoulli(0.3) else number
        text += f" {plural(noun)}"
    else:
        text = f"{rng.choice(v.GROUPS) if count > 2 else 'two'} {plural(noun)}"
    return _grounded(scene, text, rng, 0.0, verb=kind < 2 and scene.domain != "alt")


def _grounded(scene: SceneTruth, text: str, rng: RandomStream, detail: float, *, verb: bool) -> str:
    """Usually adds the background before or after ``text``, sometimes with a verb. Otherwise, adds at most an
    opener.
    """
    names_ground = rng.bernoulli(0.75 + 0.25 * detail)
    if not names_ground:
        opener = rng.zipf_choice(v.CLIP_OPENERS if scene.length > 1 else v.OPENERS) if scene.domain != "alt" else ""
        return f"{opener} {text}".strip() if verb and rng.bernoulli(0.6) else text
    ground = _synonym(scene, "ground", scene.ground, rng)
    if scene.domain == "alt":
        return f"{text} {ground}"
    if verb and rng.bernoulli(0.12):
        return f"{ground} {rng.choice(('there is', 'we see', rng.zipf_choice(_verbs(scene))))} {text}"
    if verb and rng.bernoulli(0.3):
        return f"{text} {rng.zipf_choice(_verbs(scene))} {ground}"
    return f"{text} {ground}"


def _mentioned(scene: SceneTruth, rng: RandomStream, detail: float) -> list[int]:
    """Returns the objects to mention, in order. Large objects tend to come first."""
    count = len(scene.objects)
    weights = tuple(2.0 if o.size == "large" else 1.0 for o in scene.objects)
    first = rng.weighted_choice(range(count), weights)
    others = [i for i in range(count) if i != first and rng.bernoulli(detail**1.5)]
    if len(others) < 2:
        return [first, *others]
    order = [i for i in reading_order(scene.objects) if i == first or i in others]
    return order[::-1] if rng.bernoulli(0.5) else order


def _relation(scene: SceneTruth, i: int, j: int, rng: RandomStream, detail: float) -> str:
    """Returns a phrase for the relation of i to j. Unless everything is mentioned, this is sometimes "near" if the
    objects are near.
    """
    if detail < 1 and rng.bernoulli(0.2) and holds("near", scene.objects, i, j):
        return _synonym(scene, "relation", "near", rng)
    return _synonym(scene, "relation", _linked(scene, i, j), rng)


def _betweenness(scene: SceneTruth, i: int) -> tuple[int, int] | None:
    count = len(scene.objects)
    for j in range(count):
        for k in range(j + 1, count):
            if i not in (j, k) and between(scene.objects, i, j, k):
                return j, k
    return None


def _plain(scene: SceneTruth, rng: RandomStream, detail: float) -> str:
    order = _mentioned(scene, rng, detail)
    phrases: dict[str, int] = {}
    for i in order:
        # Leaves out an object that would get the same phrase, because "a thing and a thing" would be a repetition.
        phrases.setdefault(_noun_phrase(scene, scene.objects[i], rng, detail), i)
    names, order = list(phrases), list(phrases.values())
    middle = _betweenness(scene, order[0]) if detail < 1 and rng.bernoulli(detail / 2) else None
    if middle is not None:
        sides = [_noun_phrase(scene, scene.objects[i], rng, detail) for i in middle]
        if len({names[0], *sides}) == 3:
            phrase = _synonym(scene, "relation", "between", rng)
            text = f"{names[0]} {phrase} {sides[0]} and {sides[1]}"
            return _grounded(scene, text, rng, detail, verb=False)
    text, related = names[0], False
    for place, (i, j) in enumerate(itertools.pairwise(order)):
        if rng.bernoulli(detail):
            moving = scene.length > 1
            lead = rng.choice(("which is ", f"that {rng.zipf_choice(_verbs(scene))} ")) if place else ""
            if not place and (moving or rng.bernoulli(0.4)):
                lead = rng.choice(("is ", f"{rng.zipf_choice(_verbs(scene))} "))
            text += f" {lead}{_relation(scene, i, j, rng, detail)} {names[place + 1]}"
            related = True
        else:
            text += f" {rng.choice(('and', 'and', 'with'))} {names[place + 1]}"
            related = False
    return _grounded(scene, text, rng, detail, verb=len(order) == 1 and not related)


def _cocolike(scene: SceneTruth, rng: RandomStream, share: float) -> str:
    """Describes a picture's salient content, usually two objects with about one attribute each, as in "a dog on a
    surfboard in the water".

    The salience of objects and attributes is the same for all references. What a reference mentions is random, with
    probabilities multiplied by ``share``. It usually mentions the most salient object first (a large object if there is
    one), then its relation to the second object, sometimes a third object, and the background.
    """
    taste = RandomStream("striking", scene.id)
    large = [thing.size != "large" for thing in scene.objects]
    ranked = sorted(range(len(large)), key=lambda i: (large[i], taste.uniform()))
    striking = {i: taste.choice(("colour", "colour", "size", "texture")) for i in ranked}
    if not rng.bernoulli(_SALIENT_FIRST):
        ranked[:2] = ranked[1], ranked[0]

    def named(slot: str, value: str) -> str:
        own = RandomStream("synonym", scene.id, slot, value) if rng.bernoulli(_SAME_SYNONYM) else rng
        return _synonym(scene, slot, value, own)

    def phrase(i: int) -> str:
        thing = scene.objects[i]
        said = [
            named(slot, getattr(thing, slot))
            for slot in ("size", "colour", "texture")
            if rng.bernoulli(min(1.0, share * (_STRIKING if striking[i] == slot else _OTHER)))
            and (v.UNMARKED.get(slot) != getattr(thing, slot) or rng.bernoulli(_OTHER))
        ]
        kind = rng.bernoulli(min(1.0, share * _KIND))
        noun = named("shape", thing.shape) if kind else rng.zipf_choice(v.GENERIC)
        doing = ""
        if scene.length > 1 and rng.bernoulli(min(1.0, share * _STRIKING)):
            doing = f" {participle(named('motion', thing.motion))}"
        return with_article(" ".join([*said, noun])) + doing

    first, second = phrase(ranked[0]), phrase(ranked[1])
    if first == second or not rng.bernoulli(_SECOND):
        return _grounded(scene, first, rng, _USUAL_DETAIL, verb=True)
    lead = "is " if scene.length > 1 or rng.bernoulli(0.4) else ""
    text = f"{first} {lead}{named('relation', _linked(scene, *ranked[:2]))} {second}"
    if len(ranked) > 2 and rng.bernoulli(_THIRD) and (third := phrase(ranked[2])) not in (first, second):
        text += f" and {third}"
    return _grounded(scene, text, rng, _USUAL_DETAIL, verb=False)


def _alt(scene: SceneTruth, rng: RandomStream, detail: float) -> str:
    order = _mentioned(scene, rng, detail)
    text, last = "", ""
    for place, i in enumerate(order):
        name = _alt_name(scene, scene.objects[i], rng, detail)
        if name == last:
            continue
        link = ""
        if place:
            previous = order[place - 1]
            related = rng.bernoulli(detail) and last
            link = _relation(scene, previous, i, rng, detail) if related else rng.choice(("and", "with"))
        text, last = f"{text} {link} {name}".strip(), name
    return _alt_dress(scene, _grounded(scene, text, rng, detail, verb=False), rng)


def _alt_name(scene: SceneTruth, thing: Object, rng: RandomStream, detail: float) -> str:
    name = _noun_phrase(scene, thing, rng, detail, bare=True)
    if scene.length == 1 or not rng.bernoulli(detail * detail if thing.motion == "still" else detail):
        return name
    doing = participle(_synonym(scene, "motion", thing.motion, rng))
    # "leftwards" is used because without "is" in between, "moving left left of" would stutter.
    return f"{name} {doing}{'wards' if doing.endswith(('left', 'right')) else ''}"


def _alt_dress(scene: SceneTruth, text: str, rng: RandomStream) -> str:
    """Adds a prefix and a suffix and applies title case at random, as in alt-text on the web."""
    if rng.bernoulli(0.3):
        text = f"{rng.zipf_choice(v.ALT_PREFIXES)} {text}"
    kind = rng.uniform()
    if kind < 0.35:
        text = f"{text}{rng.choice((' ', ', ', ' | '))}{rng.zipf_choice(v.ALT_TAILS)}"
    elif kind < 0.45:
        number = f"{rng.randrange(10000):04d}"
        text = f"{text} {rng.zipf_choice(v.ALT_FILES)}_{number}.{rng.zipf_choice(v.ALT_ENDINGS)}"
    return text.title() if rng.bernoulli(0.6) else text
