"""Computes a caption's scene-graph F against its scene's ground truth, as SPICE does, but with an exact parser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.scenes.parser import ParsedCaption, parse_caption
from tellapart.scenes.relations import INVERSE
from tellapart.scenes.vocabulary import FIELDS
from tellapart.scenes.world import Scene


@dataclass(frozen=True, slots=True)
class GraphScore:
    """Precision, recall and F of scene-graph tuples, 0..1."""

    precision: float
    recall: float
    f: float


def _graph_counts(caption: str | ParsedCaption, scene: Scene) -> tuple[int, int, int, int]:
    """Returns the number of the caption's tuples, how many of them are true, the number of the scene's tuples, and how
    many of those the caption contains.
    """
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    caption_tuples: set[tuple[str, ...]] = {("ground", g) for g in parsed.grounds}
    for mention in parsed.mentions:
        name = mention.shape or "thing"
        caption_tuples.add((name,))
        for slot, values in mention.values.items():
            # Contradictory values match nothing.
            mark = () if len(values) == 1 else ("contradicted",)
            caption_tuples |= {(name, slot, value, *mark) for value in values}
    for kind, *who in parsed.relations:
        names = [parsed.mentions[int(m)].shape or "thing" for m in who]
        caption_tuples.add(_relation_tuple(str(kind), names))
    caption_tuples.discard(("thing",))
    facts = scene.facts
    scene_tuples: set[tuple[str, ...]] = {("ground", scene.ground)}
    for thing in facts:
        scene_tuples.add((thing[0],))
        scene_tuples |= {(thing[0], slot, value) for slot, value in zip(FIELDS[1:], thing[1:], strict=True) if value}
    scene_tuples |= {_relation_tuple(kind, [facts[i][0], facts[j][0]]) for kind, i, j in scene.chain}
    true = scene_tuples | scene.true_relation_tuples
    return len(caption_tuples), len(caption_tuples & true), len(scene_tuples), len(caption_tuples & scene_tuples)


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
    stated, true, expected, recalled = _graph_counts(caption, scene)
    precision = true / stated if stated else 0.0
    recall = recalled / expected if expected else 0.0
    both = precision + recall
    return GraphScore(precision, recall, 2 * precision * recall / both if both else 0.0)
