"""Reads the candidate sets of an evaluation: ``--bags`` and ``--distractors``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tellapart.data import Dataset, open_data
from tellapart.data.caption_matching import KnownIds, match_ids
from tellapart.data.id_lists import is_id_list
from tellapart.data.new_pictures import beside
from tellapart.data.specification import listed
from tellapart.errors import UsageError
from tellapart.evaluation.digests import short_digest
from tellapart.evaluation.eval_inputs import CandidateInputs
from tellapart.evaluation.file_sets import FileSets, hard_pool, read_sets
from tellapart.evaluation.matching import files_of, note_of
from tellapart.types import Item


def read_bag_sets(bags: Sequence[Path], dataset: Dataset | None) -> tuple[list[FileSets], list[str]]:
    """Reads the sets given by ``--bags``, and matches their ids to the data as for caption files. Returns the sets and
    notes.
    """
    found, notes = [own for path in bags for own in read_sets(path)], list[str]()
    if found and dataset is not None:
        known = KnownIds("the data", [item.id for item in dataset], files_of(dataset))
        for place, own in enumerate(found):
            names, how = match_ids(own.ids(), known, own.name)
            found[place] = own.renamed(names)
            notes += note_of(how)
    return found, notes


def read_candidates(
    sets: Sequence[FileSets],
    distractors: str | None,
    ids: Sequence[str],
    dataset: Dataset | None,
    scorer: str | None,
) -> CandidateInputs:
    """Returns the sets given by ``--bags``, the pool with ``--distractors``, and the pictures in them that have no
    caption.

    ``distractors``: a data set, or a file that lists ids of pictures from any split of ``dataset``.
    """
    if not sets and distractors is None:
        return CandidateInputs()
    if scorer is None:
        raise UsageError("--bags and --distractors require a scorer; add --scorer MODEL")

    captioned, notes, sets = set(ids), list[str](), list(sets)
    others: Mapping[str, Item] = {item.id: item for item in dataset or ()}
    for place, own in enumerate(sets):
        bare = [id_ for id_ in own.ids() if id_ not in captioned and id_ in others]
        if dataset is not None and (lost := {id_ for id_ in bare if dataset.load_image(others[id_]) is None}):
            sets[place] = own = own.without(lost)
            notes.append(
                f"{own.name}: {len(lost):,} pictures cannot be read, such as '{min(lost)}'; their sets are "
                f"omitted ({len(own.sets):,} sets remain)"
            )
        if bare := [id_ for id_ in own.asked() if id_ not in captioned]:
            raise UsageError(
                f"{own.name}: {len(bare):,} of {len(own.asked()):,} target pictures have no caption or are not in "
                f"the data, such as '{bare[0]}'; pass captions for all of them, and the data that contain them"
            )
    named = dict.fromkeys(id_ for own in sets for id_ in own.ids() if id_ not in captioned)
    candidates = [others[id_] for id_ in named if id_ in others]
    if distractors is not None:
        captions_of = [others[id_] for id_ in ids if id_ in others]
        if (path := Path(distractors).expanduser()).suffix == ".json" and is_id_list(path):
            if dataset is None:
                raise UsageError(
                    f"{distractors}: a list of ids requires the data that contain the pictures; add --data SPEC"
                )
            distractors = listed(dataset.spec, path)
        others_of = open_data(distractors)
        notes += others_of.report()
        pool = beside(others_of, [*captions_of, *candidates])
        pool_ids = [item.id for item in pool]
        origin = f"distractors:{len(pool)}@{distractors},{short_digest(sorted(pool_ids))}"
        sets.append(hard_pool(ids, pool_ids, origin))
        candidates += pool
    names = [own.name for own in sets]
    if double := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two files contain sets named {double[0]}; evaluate them one after the other")
    return CandidateInputs(sets, candidates, notes)
