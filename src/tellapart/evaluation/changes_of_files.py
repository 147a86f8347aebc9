"""Compares two caption files picture by picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tellapart.data import open_data
from tellapart.data.caption_files import read_caption_file
from tellapart.errors import UsageError
from tellapart.evaluation.changes import Changes, find_falls, find_only_right
from tellapart.evaluation.facts import check_tagger
from tellapart.evaluation.matching import match_files, read_references
from tellapart.evaluation.prepare import lists_of, references_of
from tellapart.utils.messages import say


def changes_of_files(
    before: Path,
    after: Path,
    data: str,
    references: Path | None = None,
    *,
    scorer: str | None = None,
    top: int = 20,
    allow_missing: bool = False,
    device: str = "auto",
) -> Changes:
    """Compares the first caption that each file gives for a picture, and prints notes on the files.

    scorer: the scorer that finds captions which only the new system gets right; None skips this comparison.
    top: the number of pictures to return per kind of decrease.
    Raises `UsageError` if the files have fewer than two pictures in common, or if pictures have no references.
    """
    dataset = open_data(data)
    files = {"before": read_caption_file(before), "after": read_caption_file(after)}
    captions, texts, notes = match_files(files, read_references(references), dataset, allow_missing, 0.5)
    items = [item for item in dataset if item.id in captions["before"]]
    ids = [item.id for item in items]
    if len(ids) < 2:
        raise UsageError("CIDEr of a single picture is always 0; pass captions of at least two pictures")
    known, more = references_of(ids, items, texts)
    for note in (*notes, *more):
        say(note)
    if known is None:
        raise UsageError("CIDEr requires references, but some pictures have none; add --references")
    judged_by = "the ground truth"
    if any(item.truth is None for item in items):
        check_tagger()
        judged_by = "the references; a claim that no reference makes counts as false"
    first, second = ([own[0] for own in lists_of(name, captions[name], ids)] for name in ("before", "after"))
    falls, kinds = find_falls(items, known, first, second, top)
    found = Changes(len(ids), sum(kinds.values()), kinds, judged_by, falls)
    if scorer is not None:
        from tellapart.features.store import FeatureStore
        from tellapart.scorers import load_scorer

        model = load_scorer(scorer, device)
        image_ND = np.asarray(FeatureStore().features(items, model.encoder))
        text_ND, more_ND = (model.text_features(own).cpu().numpy() for own in (first, second))
        retrieval, only = find_only_right(ids, first, second, (text_ND, more_ND, image_ND))
        found = replace(found, retrieval=retrieval, only_after=only[:top])
    return found
