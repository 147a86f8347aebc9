"""Builds a report's gallery: look-alike sets or single pictures, with each system's captions and thumbnails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tellapart.data.pictures import is_clip, sample_frames
from tellapart.errors import PictureError
from tellapart.evaluation.facts.verdict import Verdict
from tellapart.evaluation.retrieval import Retrieval
from tellapart.metrics.results import Results
from tellapart.metrics.slots import CHANCE, HUMAN
from tellapart.scenes.marked_captions import mark_caption
from tellapart.scenes.world import Scene
from tellapart.types import Item, Picture

# What share of the gallery each kind gets. Losses and misses have fixed shares, so that a page cannot show only wins.
_SHARES = {"won": 0.45, "lost": 0.25, "missed": 0.2, "hit": 0.1}


def gallery(results: Results, items: Sequence[Item] | None = None, k: int = 24) -> dict[str, Any]:
    """Returns up to k look-alike sets as JSON data.

    The layout is ``{"sets": [{"target", "candidates", "references", "systems": {name: {"caption", "scores",
    "picked"}}}]}``. Pictures are given by id, the target is the first candidate, and scores are cosines by candidate. A
    system also has ``"claims": {"correct", "of", "false": [[start, end, why]]}``, which marks the characters of false
    claims (`tellapart.scenes.marked_captions.mark_caption`) if the ground truth is known, or else the claims that a
    facts metric could not verify.

    The first system is the baseline. Fixed shares of the sets are those where a later system hits and the baseline
    misses ("won"), where the reverse is true ("lost"), where all systems miss, and where all hit. Each share is spread
    evenly over the data. The gallery is empty if no look-alike metric was computed.
    """
    found: dict[str, Retrieval] = results.extra.get("lookalike", {})
    rivals = [own for name, own in found.items() if name not in (HUMAN, CHANCE)] or list(found.values())
    return _sets(results, items, _informative(rivals, k) if found else [], found)


def caption_gallery(results: Results, items: Sequence[Item] | None = None) -> dict[str, Any]:
    """For results without candidate sets, returns up to 24 pictures with all their captions, spread evenly over the
    data.
    """
    count = len(results.ids)
    return _sets(results, items, _spread(np.arange(count), min(24, count)), {})


def _informative(found: Sequence[Retrieval], k: int) -> list[int]:
    hit_SN = np.array([retrieval.hit(1) for retrieval in found])
    asked_N = ~np.isnan(hit_SN).any(0)
    base_N, later_SN = hit_SN[0] == 1, hit_SN[1:] == 1
    kinds = {
        "won": ~base_N & later_SN.any(0),
        "lost": base_N & ~later_SN.all(0),
        "missed": ~base_N & ~later_SN.any(0),
        "hit": base_N & later_SN.all(0),
    }
    rows = {kind: np.flatnonzero(mask_N & asked_N) for kind, mask_N in kinds.items()}
    quota = {kind: min(len(rows[kind]), round(share * k)) for kind, share in _SHARES.items()}
    for kind in quota:  # slots that one kind cannot fill go to the other kinds, in order
        quota[kind] += max(0, min(len(rows[kind]) - quota[kind], k - sum(quota.values())))
    return [row for kind, count in quota.items() for row in _spread(rows[kind], count)][:k]


def _spread(row_M: np.ndarray, count: int) -> list[int]:
    """Returns ``count`` of the rows, spaced evenly over the data to avoid cherry-picking."""
    return [int(row_M[place * len(row_M) // count]) for place in range(count)]


def _sets(
    results: Results, items: Sequence[Item] | None, rows: Sequence[int], found: Mapping[str, Retrieval]
) -> dict[str, Any]:
    """Returns one set per row. Without retrieval results, a set contains only its target."""
    references = {item.id: list(item.references) for item in items or ()}
    if results.references is not None:
        references = dict(zip(results.ids, results.references, strict=True))
    truth = {item.id: item.truth for item in items or ()}
    marks = results.extra.get("marks", {})
    sets = []
    for row in rows:
        target = results.ids[row]
        members, systems = [target], {}
        for name, captions in results.captions.items():
            caption, verdicts = captions[row], marks.get(name, ())
            claims = _claims(caption, truth.get(target), verdicts[row] if len(verdicts) else None)
            systems[name] = {"caption": caption, **claims}
            if name in found:
                own = found[name]
                question = int(np.flatnonzero(own.sets.target_Q == row)[0])
                members = [results.ids[member] for member in own.sets.sets[own.sets.set_Q[question]]]
                scores = [round(float(score), 4) for score in own.scores(question)]
                picked = results.ids[int(own.picked_N[row])]
                systems[name] |= {"scores": dict(zip(members, scores, strict=True)), "picked": picked}
        of_target = references.get(target, [])
        sets.append({"target": target, "candidates": members, "references": of_target, "systems": systems})
    return {"sets": sets}


def _claims(caption: str, truth: Scene | None, verdict: Verdict | None) -> dict[str, Any]:
    """Returns a caption's claims as ``{"claims": {"correct", "of", "false"}}``: according to the ground truth if it is
    known, or else as verified by a facts metric. Returns an empty dict if neither is available.
    """
    if truth is not None:
        marked = mark_caption(caption, truth)
        claims = {"correct": marked.correct, "of": marked.claims, "false": [list(span) for span in marked.false]}
        return {"claims": claims}
    if verdict is None:
        return {}
    claims = {"correct": round(verdict.correct), "of": round(verdict.claims), "false": list(map(list, verdict.false))}
    return {"claims": {**claims, "unverified": True}}


def save_pictures(folder: Path, sets: Mapping[str, Any], items: Iterable[Item]) -> dict[str, str]:
    """Saves thumbnails of a gallery's pictures in ``folder``/gallery and returns a mapping from id to file. A clip's
    thumbnail shows four frames.

    Skips pictures that cannot be read.
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
        small = max(image.size) <= 96  # small pixel art is kept as it is, because the page enlarges it
        name = f"{number:03d}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', key)[:60]}.{'png' if small else 'jpg'}"
        if not small:
            image.thumbnail((160, 160))
        image.save(folder / "gallery" / name, quality=85)
        pictures[key] = f"gallery/{name}"
    return pictures


def preview_image(picture: Picture) -> Image.Image:
    """Returns a still for display: the picture itself, or four frames of a clip on one sheet in reading order."""
    if not is_clip(picture):
        return picture.image()
    frames = sample_frames(picture, 4)
    width, height = frames[0].size
    gap = max(1, width // 40)
    sheet = Image.new("RGB", (2 * width + gap, 2 * height + gap), "white")
    for place, frame in enumerate(frames):
        sheet.paste(frame, (place % 2 * (width + gap), place // 2 * (height + gap)))
    return sheet
