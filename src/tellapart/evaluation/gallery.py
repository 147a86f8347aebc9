"""Builds a report's gallery: look-alike sets or single pictures, with each system's captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tellapart.evaluation.retrieval import Retrieval
from tellapart.metrics.results import Results
from tellapart.scenes.truth import mark_caption
from tellapart.scenes.world import Scene
from tellapart.types import Item

_YARDSTICKS = ("human", "chance")
# What share of the gallery each kind gets. Losses and misses have fixed shares, so that a page cannot show only wins.
_SHARES = (("won", 0.45), ("lost", 0.25), ("missed", 0.2), ("hit", 0.1))


def gallery(results: Results, items: Sequence[Item] | None = None, k: int = 24) -> dict[str, Any]:
    """Returns up to k look-alike sets as JSON data.

    The layout is ``{"sets": [{"target", "candidates", "references", "systems": {name: {"caption", "scores",
    "picked"}}}]}``. Pictures are given by id, the target is the first candidate, and scores are cosines by candidate. A
    system also has ``"claims": {"correct", "of", "false": [[start, end, why]]}``, which marks the characters of false
    claims (`tellapart.scenes.truth.mark_caption`) if the ground truth is known, or else the claims that a facts metric
    could not verify.

    The first system is the baseline. Fixed shares of the sets are those where a later system hits and the baseline
    misses ("won"), where the reverse is true ("lost"), where all systems miss, and where all hit. Each share is spread
    evenly over the data. The gallery is empty if no look-alike metric was computed.
    """
    found: dict[str, Retrieval] = results.extra.get("lookalike", {})
    if not found:
        return {"sets": []}
    references = _references(results, items)
    truth = {item.id: item.truth for item in items or () if item.truth is not None}
    rows = _informative({name: own for name, own in found.items() if name not in _YARDSTICKS} or found, k)
    return {"sets": [_set(results, found, references, truth, row) for row in rows]}


def caption_gallery(results: Results, items: Sequence[Item] | None = None) -> dict[str, Any]:
    """For results without candidate sets, returns up to 24 pictures with all their captions, spread evenly over the
    data.
    """
    references = _references(results, items)
    truth = {item.id: item.truth for item in items or () if item.truth is not None}
    rows = _spread(np.arange(len(results.ids)), min(24, len(results.ids)))
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
    for kind, _ in _SHARES:  # slots that one kind cannot fill go to the other kinds, in order
        quota[kind] += max(0, min(len(rows[kind]) - quota[kind], k - sum(quota.values())))
    return [int(row) for kind, _ in _SHARES for row in _spread(rows[kind], quota[kind])][:k]


def _spread(row_M: np.ndarray, count: int) -> np.ndarray:
    """Returns ``count`` of the rows, spaced evenly over the data to avoid cherry-picking."""
    return row_M[np.arange(count) * len(row_M) // count] if count else row_M[:0]


def claims(caption: str, truth: Scene | None) -> dict[str, Any]:
    """Returns a caption's claims as ``{"claims": {"correct", "of", "false"}}``, or an empty dict without ground
    truth.
    """
    if truth is None:
        return {}

    marked = mark_caption(caption, truth)
    return {"claims": {"correct": marked.correct, "of": marked.claims, "false": [list(span) for span in marked.false]}}


def _caption(results: Results, system: str, row: int, truth: Mapping[str, Scene]) -> dict[str, Any]:
    """Returns a system's caption for a picture, and the caption's claims."""
    caption = results.captions[system][row]
    return {"caption": caption, **(claims(caption, truth.get(results.ids[row])) or _marked(results, system, row))}


def _marked(results: Results, system: str, row: int) -> dict[str, Any]:
    """Returns a caption's `claims` as verified by a facts metric, or an empty dict if no such metric was computed."""
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
