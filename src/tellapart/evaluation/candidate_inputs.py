"""Collects an evaluation's candidates: the sets given by ``--bags``, the pool with ``--distractors``, and the pictures
in them that have no caption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tellapart.data import Dataset, open_data
from tellapart.data.caption_matching import KnownIds, match_ids
from tellapart.data.id_lists import is_id_list
from tellapart.data.new_pictures import beside
from tellapart.data.specification import listed
from tellapart.errors import UsageError
from tellapart.evaluation.digests import short_digest
from tellapart.evaluation.file_sets import HARD, FileSets, read_sets
from tellapart.evaluation.matching import note_of
from tellapart.types import Item


@dataclass(frozen=True)
class CandidateInputs:
    """Candidate sets from files, and the pictures in them that are only candidates because they have no caption."""

    sets: Sequence[FileSets] = ()
    items: Sequence[Item] = ()
    notes: Sequence[str] = ()


def read_bag_sets(bags: Sequence[Path], dataset: Dataset | None) -> tuple[list[FileSets], list[str]]:
    """Reads the sets given by ``--bags``, and matches their ids to the data as for caption files. Returns the sets and
    notes.
    """
    found, notes = [own for path in bags for own in read_sets(path)], list[str]()
    if found and dataset is not None:
        known = KnownIds.of_files("the data", dataset)
        for place, own in enumerate(found):
            names, how = match_ids(own.ids(), known, own.name)
            found[place] = own.renamed(names)
            notes += note_of(how)
    return found, notes


def read_candidates(
    sets: Sequence[FileSets], distractors: str | None, ids: Sequence[str], dataset: Dataset | None
) -> CandidateInputs:
    """Returns the sets given by ``--bags``, the pool with ``--distractors``, and the pictures in them that have no
    caption.

    ``distractors``: a data set, or a file that lists ids of pictures from any split of ``dataset``.
    """
    if not sets and distractors is None:
        return CandidateInputs()
    captioned, notes, kept = set(ids), list[str](), list[FileSets]()
    others: dict[str, Item] = {item.id: item for item in dataset or ()}
    for own in sets:
        bare = [id_ for id_ in own.ids() if id_ not in captioned and id_ in others]
        if dataset is not None:
            own = own.without_unreadable({id_ for id_ in bare if dataset.load_image(others[id_]) is None}, notes)
        asked = own.asked()
        if bare := [id_ for id_ in asked if id_ not in captioned]:
            raise UsageError(
                f"{own.name}: {len(bare):,} of {len(asked):,} target pictures have no caption or are not in "
                f"the data, such as '{bare[0]}'; pass captions for all of them, and the data that contain them"
            )
        kept.append(own)
    named = dict.fromkeys(id_ for own in kept for id_ in own.ids() if id_ not in captioned)
    candidates = [others[id_] for id_ in named if id_ in others]
    if distractors is not None:
        if (path := Path(distractors).expanduser()).suffix == ".json" and is_id_list(path):
            if dataset is None:
                raise UsageError(
                    f"{distractors}: a list of ids requires the data that contain the pictures; add --data SPEC"
                )
            distractors = listed(dataset.spec, path)
        pictures = open_data(distractors)
        notes += pictures.report()
        pool = beside(pictures, [*(others[id_] for id_ in ids if id_ in others), *candidates])
        if not pool:
            raise UsageError("no distractor remains, because all of them have captions to evaluate")
        pool_ids = [item.id for item in pool]
        source = f"{distractors},{short_digest(sorted(pool_ids))}"
        kept.append(FileSets(HARD, [(*ids, *pool_ids)], [tuple(ids)], source))
        candidates += pool
    names = [own.name for own in kept]
    if double := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two files contain sets named {double[0]}; evaluate them one after the other")
    return CandidateInputs(kept, candidates, notes)
