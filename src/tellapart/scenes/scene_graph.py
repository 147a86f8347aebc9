"""Computes a caption's scene-graph F against its scene's ground truth, as SPICE does, but with an exact parser."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tellapart.scenes.objects import FIELDS
from tellapart.scenes.parser import ParsedCaption, parse_caption
from tellapart.scenes.relations import INVERSE, between, holds
from tellapart.scenes.world import Scene


class GraphScore(NamedTuple):
    """Precision, recall and F of scene-graph tuples, 0..1."""

    precision: float
    recall: float
    f: float


Tuples = set[tuple[str, ...]]


def _caption_tuples(parsed: ParsedCaption) -> Tuples:
    names = [mention.shape or "thing" for mention in parsed.mentions]
    tuples: Tuples = {("ground", ground) for ground in parsed.grounds} | {(name,) for name in names}
    for name, mention in zip(names, parsed.mentions, strict=True):
        for slot, values in mention.values.items():
            # Contradictory values match nothing.
            mark = () if len(values) == 1 else ("contradicted",)
            tuples |= {(name, slot, value, *mark) for value in values}
    tuples |= {_relation_tuple(str(kind), [names[int(m)] for m in who]) for kind, *who in parsed.relations}
    return tuples - {("thing",)}


@lru_cache(maxsize=4096)
def _scene_tuples(scene: Scene) -> tuple[Tuples, Tuples]:
    """Returns the tuples in the full description, and all true tuples."""
    names, things = [facts[0] for facts in scene.facts], range(len(scene.objects))
    described: Tuples = {("ground", scene.ground)} | {(name,) for name in names}
    for name, *values in scene.facts:
        described |= {(name, slot, value) for slot, value in zip(FIELDS[1:], values, strict=True) if value}
    described |= {_relation_tuple(kind, [names[i], names[j]]) for kind, i, j in scene.chain}
    true = {_relation_tuple(kind, [names[i], names[j]]) for kind in INVERSE
            for i, j in itertools.permutations(things, 2) if holds(kind, scene.objects, i, j)}  # fmt: skip
    true |= {_relation_tuple("between", [names[n] for n in who])
             for who in itertools.permutations(things, 3) if between(scene.objects, *who)}  # fmt: skip
    return described, described | true


def _relation_tuple(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Returns a canonical tuple, which is the same for "a left of b" and "b right of a"."""
    if kind == "between":
        return (kind, names[0], *sorted(names[1:]))
    if kind in ("right of", "below", "behind"):
        return (INVERSE[kind], names[1], names[0])
    return (kind, *(sorted(names) if kind == "near" else names))


def scene_graph_f(caption: str | ParsedCaption, scene: Scene) -> GraphScore:
    """Computes F1 over scene-graph tuples as SPICE does, but with an exact parser.

    Tuples are (shape), (shape, slot, value), (relation, shape, shape) and (background). Objects are identified by their
    shape, as in SPICE, so two stars are a single node. Precision considers all true tuples; recall considers only the
    tuples in the full description. Precision, recall and F are 0 for a caption without claims.
    """
    stated = _caption_tuples(parse_caption(caption) if isinstance(caption, str) else caption)
    described, true = _scene_tuples(scene)
    precision = len(stated & true) / len(stated) if stated else 0.0
    recall = len(stated & described) / len(described)
    both = precision + recall
    return GraphScore(precision, recall, 2 * precision * recall / both if both else 0.0)
