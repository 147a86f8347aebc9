"""Look-alike sets worth a look: where systems differ, where all miss, and where one got worse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tellapart.data.pictures import preview_image
from tellapart.errors import PictureError, UsageError
from tellapart.evaluation.facts.verify import facts_of
from tellapart.evaluation.test_sets import Retrieval, random_pools, retrieve
from tellapart.language.claims import NO_SYNONYMS, claims_of, extract
from tellapart.metrics.cider import cider_d
from tellapart.metrics.results import Results
from tellapart.scenes.truth import mark_caption
from tellapart.scenes.world import Scene
from tellapart.types import Item
from tellapart.utils.messages import Progress

_YARDSTICKS = ("human", "chance")
# Shares of the gallery. Losses and misses keep their places, so that a page cannot be filled with wins alone.
_SHARES = (("won", 0.45), ("lost", 0.25), ("missed", 0.2), ("hit", 0.1))


def gallery(results: Results, items: Sequence[Item] | None = None, k: int = 24) -> dict[str, Any]:
    """Up to k look-alike sets as plain data.

    ``{"sets": [{"target", "candidates", "references", "systems": {name: {"caption", "scores", "picked"}}}]}``:
    ids throughout, the target first among the candidates, scores are cosines by candidate. Where the truth of the
    items is known, a system has ``"claims": {"correct", "of", "false": [[start, end, why]]}`` as well: which characters
    of its caption claim what is not so (`tellapart.scenes.truth.mark_caption`); without a truth, what a metric of facts
    could not verify. The first system
    is the baseline: sets where a later system hits and it misses ("won"), the reverse ("lost"), where all miss and
    where all hit, in fixed shares, each kind spread evenly over the data. Empty where no look-alike metric was
    computed.
    """
    found: dict[str, Retrieval] = results.extra.get("lookalike", {})
    if not found:
        return {"sets": []}
    references = _references(results, items)
    truth = {item.id: item.truth for item in items or () if item.truth is not None}
    rows = _informative({name: own for name, own in found.items() if name not in _YARDSTICKS} or found, k)
    return {"sets": [_set(results, found, references, truth, row) for row in rows]}


def caption_gallery(results: Results, items: Sequence[Item] | None = None, k: int = 24) -> dict[str, Any]:
    """Up to k pictures, evenly over the data, with every system's caption: for results without candidate sets."""
    references = _references(results, items)
    truth = {item.id: item.truth for item in items or () if item.truth is not None}
    rows = _spread(np.arange(len(results.ids)), min(k, len(results.ids)))
    return {
        "sets": [
            {
                "target": results.ids[row],
                "candidates": [results.ids[row]],
                "references": references.get(results.ids[row], []),
                "systems": {name: _caption(results, name, row, truth) for name in results.captions},
            }
            for row in rows
        ]
    }


def save_pictures(folder: Path, sets: Mapping[str, Any], items: Iterable[Item], side: int = 160) -> dict[str, str]:
    """Small copies of the pictures of a gallery in ``folder``/gallery: id to file. Of a clip four frames.

    A picture that cannot be read is left out.
    """
    keys = dict.fromkeys(key for entry in sets["sets"] for key in (entry["target"], *entry["candidates"]))
    by_id = {item.id: item for item in items if item.id in keys}
    pictures = {}
    (folder / "gallery").mkdir(exist_ok=True)
    for number, key in enumerate(keys):
        try:
            image = preview_image(by_id[key].picture)
        except PictureError:
            continue
        small = max(image.size) <= 96  # drawn pixel by pixel: keep them, enlarge later
        name = f"{number:03d}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', key)[:60]}.{'png' if small else 'jpg'}"
        if not small:
            image.thumbnail((side, side))
        image.save(folder / "gallery" / name, quality=85)
        pictures[key] = f"gallery/{name}"
    return pictures


def _references(results: Results, items: Sequence[Item] | None) -> dict[str, list[str]]:
    if results.references is not None:
        return dict(zip(results.ids, results.references, strict=True))
    return {item.id: list(item.references) for item in items or ()}


def _informative(found: dict[str, Retrieval], k: int) -> list[int]:
    hit_SN = np.array([retrieval.hit(1) for retrieval in found.values()])
    asked_N = ~np.isnan(hit_SN).any(0)
    base_N, later_SN = hit_SN[0] == 1, hit_SN[1:] == 1
    kinds = {
        "won": ~base_N & later_SN.any(0),
        "lost": base_N & ~later_SN.all(0) if len(later_SN) else np.zeros_like(base_N),
        "missed": ~base_N & ~later_SN.any(0),
        "hit": base_N & later_SN.all(0),
    }
    rows = {kind: np.flatnonzero(mask_N & asked_N) for kind, mask_N in kinds.items()}
    quota = {kind: min(len(rows[kind]), round(share * k)) for kind, share in _SHARES}
    for kind, _ in _SHARES:  # places that one kind cannot fill go to the others, in order
        quota[kind] += max(0, min(len(rows[kind]) - quota[kind], k - sum(quota.values())))
    return [int(row) for kind, _ in _SHARES for row in _spread(rows[kind], quota[kind])][:k]


def _spread(row_M: np.ndarray, count: int) -> np.ndarray:
    """``count`` of the rows, evenly over the data: no picking by how good they look."""
    return row_M[np.arange(count) * len(row_M) // count] if count else row_M[:0]


def claims(caption: str, truth: Scene | None) -> dict[str, Any]:
    """Returns a caption's claims for a gallery: ``{"claims": {"correct", "of", "false"}}``; empty without a truth."""
    if truth is None:
        return {}

    marked = mark_caption(caption, truth)
    return {"claims": {"correct": marked.correct, "of": marked.claims, "false": [list(span) for span in marked.false]}}


def _caption(results: Results, system: str, row: int, truth: Mapping[str, Scene]) -> dict[str, Any]:
    """A system's caption of a picture, and its claims."""
    caption = results.captions[system][row]
    return {"caption": caption, **(claims(caption, truth.get(results.ids[row])) or _marked(results, system, row))}


def _marked(results: Results, system: str, row: int) -> dict[str, Any]:
    """`claims` of a caption that a metric of facts has verified; empty where none did."""
    marks = results.extra.get("marks", {}).get(system, ())
    if not len(marks):
        return {}
    verdict = marks[row]
    counts = {"correct": round(verdict.correct), "of": round(verdict.claims)}
    return {"claims": {**counts, "false": [list(span) for span in verdict.false], "unverified": True}}


def _set(
    results: Results,
    found: dict[str, Retrieval],
    references: dict[str, list[str]],
    truth: dict[str, Scene],
    row: int,
) -> dict[str, Any]:
    sets = next(iter(found.values())).sets
    question = int(np.flatnonzero(sets.target_Q == row)[0])
    members = [results.ids[member] for member in sets.sets[sets.set_Q[question]]]
    target = results.ids[row]
    return {
        "target": target,
        "candidates": members,
        "references": references.get(target, []),
        "systems": {
            name: {
                **_caption(results, name, row, truth),
                "scores": {
                    key: round(float(score), 4) for key, score in zip(members, own.scores(question), strict=True)
                },
                "picked": results.ids[int(own.picked_N[row])],
            }
            for name, own in found.items()
        },
    }


# Two systems picture by picture: where CIDEr falls most and why, and which captions only the later one gets right.
#
# Paper 2 (appendix C.7, figures 7 and 8) looks at the pictures where self-retrieval loses most CIDEr and finds captions
# that are right and say more, and captions that hallucinate. Paper 3 (figure 2) shows pictures that are picked by the
# caption of DiscriTune alone.

Kind = Literal["better", "equal", "hallucinated"]
POOL = 100


@dataclass(frozen=True)
class Fall:
    """A picture whose CIDEr (per cent) falls. correct, false: claims of the caption before, and after."""

    id: str
    kind: Kind
    before: str
    after: str
    cider: tuple[float, float]
    correct: tuple[int, int]
    false: tuple[int, int]


@dataclass(frozen=True)
class OnlyRight:
    """A picture that the caption after picks among its candidates, and the one before does not."""

    id: str
    before: str
    after: str


@dataclass(frozen=True)
class Changes:
    """falls: the largest of each kind, the largest first. kinds: how many of each kind there are, of all ``fallen``.

    retrieval: pictures by who is right.
    """

    pictures: int
    fallen: int
    kinds: dict[str, int]
    judged_by: str
    falls: list[Fall]
    retrieval: dict[str, int]
    only_after: list[OnlyRight]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_falls(
    items: Sequence[Item], references: Sequence[Sequence[str]], before: Sequence[str], after: Sequence[str], top: int
) -> tuple[list[Fall], dict[str, int]]:
    """The ``top`` largest falls of CIDEr-D of each kind from ``before`` to ``after``, and how many there are of each.

    "hallucinated": more false claims than before. "better": no more of them, and more correct ones. "equal": the rest.
    """
    value_N = [100 * cider_d(texts, references)[1] for texts in (before, after)]
    change_N = value_N[1] - value_N[0]
    order = [int(n) for n in np.argsort(change_N, kind="stable") if change_N[n] < 0]
    falls, kinds = [], dict.fromkeys(get_args(Kind), 0)
    with Progress(len(order), "falls") as progress:
        for n in order:
            counts = [count_claims(text, items[n], references[n]) for text in (before[n], after[n])]
            correct, false = zip(*counts, strict=True)
            kind: Kind = "hallucinated" if false[1] > false[0] else "better" if correct[1] > correct[0] else "equal"
            kinds[kind] += 1
            if kinds[kind] <= top:
                ciders = round(float(value_N[0][n]), 2), round(float(value_N[1][n]), 2)
                falls.append(Fall(items[n].id, kind, before[n], after[n], ciders, correct, false))
            progress.advance()
    return falls, kinds


def count_claims(caption: str, item: Item, references: Sequence[str]) -> tuple[int, int]:
    """(correct, false) claims: by the truth of a scene, else a claim is correct where a reference makes it."""

    if isinstance(item.truth, Scene):
        marked = mark_caption(caption, item.truth)
        return marked.correct, marked.claims - marked.correct

    known = facts_of(references, NO_SYNONYMS)
    stated = [claim in known.of(kind) for kind, claim, _ in claims_of(extract(caption), NO_SYNONYMS)]
    return sum(stated), len(stated) - sum(stated)


def find_only_right(
    ids: Sequence[str], before: Sequence[str], after: Sequence[str], features: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[dict[str, int], list[OnlyRight]]:
    """Who picks the picture among consecutive hundreds. features: of the captions before, after, and the pictures, N×D.

    The last, incomplete hundred is left out, as in paper 3.
    """
    text_ND, more_ND, image_ND = features
    sets = random_pools(len(ids), min(POOL, len(ids)))
    hit_NS = np.stack([retrieve(sets, own_ND, image_ND).hit(1) for own_ND in (text_ND, more_ND)], axis=1)
    asked = [n for n in range(len(ids)) if np.isfinite(hit_NS[n]).all()]
    names = {(1, 1): "both", (1, 0): "only_before", (0, 1): "only_after", (0, 0): "neither"}
    by = {n: names[int(hit_NS[n, 0]), int(hit_NS[n, 1])] for n in asked}
    counts = {name: sum(who == name for who in by.values()) for name in names.values()}
    only = [OnlyRight(ids[n], before[n], after[n]) for n in asked if by[n] == "only_after"]
    return counts, only


def check_top(top: int, pictures: int) -> None:
    """Raises `UsageError` where nothing would be compared."""
    if pictures < 2:
        raise UsageError("CIDEr of one picture is always 0; give captions of two pictures or more")
    if top < 1:
        raise UsageError(f"--top is {top}; expected 1 or more")
