"""Reads Pascal-50S: pairs of captions, each with 48 votes on which caption is more similar to a reference (Vedantam et
al. 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra, UsageError
from tellapart.evaluation.human_judgements.judgements import ComparedPair, Judgements, RatedCaption

VOTES = 48  # number of triplets per pair; each has a reference and a vote
REFERENCES = 5  # number of references sampled from the 48, as papers do
SEED = 0
CATEGORIES = {1: "HC", 2: "HI", 3: "HM", 4: "MM"}


def pascal_50s(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads ``pair_pascal.mat`` and ``consensus_pascal.mat``. Samples five of the 48 references with a fixed seed.

    Categories: two correct human captions (HC); two human captions, one of them for another picture (HI); one human and
        one machine caption (HM); two machine captions (MM). Raises `UsageError`, and `MissingExtra` if scipy is not
        installed.
    """
    files = [path.parent / "pair_pascal.mat", path.parent / "consensus_pascal.mat"]
    pair_file, triplet_file = map(_load, files)
    try:
        inputs, categories = pair_file["new_input"].ravel(), pair_file["category"].ravel()
        triplets = triplet_file["triplets"].ravel()
    except KeyError as error:
        raise UsageError(
            f"{path.parent} does not contain {error}; expected the files published by the authors of Pascal-50S"
        ) from None
    if len(triplets) != VOTES * len(inputs):
        raise UsageError(
            f"{files[1]} contains {len(triplets):,} triplets for {len(inputs):,} pairs; expected {VOTES} per pair"
        )
    rng = np.random.default_rng(SEED)
    captions: list[RatedCaption] = []
    pairs: list[ComparedPair] = []
    for number, (entry, category) in enumerate(zip(inputs, categories, strict=True)):
        picture, first, second = (_string(cell) for cell in entry.ravel()[:3])
        votes = [_triplet(row) for row in triplets[VOTES * number : VOTES * (number + 1)]]
        drawn = tuple(votes[place][0] for place in sorted(rng.choice(VOTES, REFERENCES, replace=False)))
        for_first = sum(preferred == first for _, preferred in votes)
        rows = (len(captions), len(captions) + 1)
        name = CATEGORIES.get(int(category), str(category))
        pairs.append(ComparedPair(*(rows if for_first * 2 >= VOTES else rows[::-1]), name, for_first * 2 == VOTES))
        captions += [RatedCaption(picture, text, drawn) for text in (first, second)]
    rule = f"references:{REFERENCES}-of-{VOTES}@seed{SEED}|tied-votes:half"
    return Judgements("pascal-50s", tuple(captions), tuple(pairs), tau="", rule=rule, judges="crowd, 48 votes")


def _triplet(row: Any) -> tuple[str, str]:
    """Returns a reference, and the caption that was judged more similar to it."""
    reference, first, second, vote = (row[name] for name in row.dtype.names[:4]) if row.dtype.names else row.ravel()[:4]
    return _string(reference), _string(first if int(np.ravel(vote)[0]) == 1 else second)


def _string(cell: Any) -> str:
    """Extracts a string from MATLAB's nested arrays."""
    while isinstance(cell, np.ndarray):
        cell = cell.ravel()[0] if cell.size else ""
    return str(cell).strip()


def _load(path: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise MissingExtra("study", f"{path.name}, a MATLAB file,") from None
    if not path.is_file():
        raise UsageError(f"{path} does not exist; expected pair_pascal.mat and consensus_pascal.mat in the same folder")
    try:
        return dict(loadmat(path))
    except (ValueError, NotImplementedError, OSError) as error:
        raise UsageError(f"cannot read {path} as a MATLAB file ({error})") from None
