"""Reads an evaluation's other inputs: candidate sets, objects, questions and queries."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from tellapart.data import Dataset, open_data
from tellapart.data.caption_files import read_reference_file
from tellapart.data.caption_matching import KnownIds, match_captions, match_ids
from tellapart.data.field_rows import read_rows
from tellapart.data.id_lists import is_id_list
from tellapart.data.new_pictures import beside
from tellapart.data.record_keys import ID_KEYS, PICTURE_KEYS, find_value
from tellapart.data.specification import listed
from tellapart.data.text_files import plain_suffix
from tellapart.errors import UsageError
from tellapart.evaluation.digests import short_digest
from tellapart.evaluation.eval_inputs import CandidateInputs
from tellapart.evaluation.facts.chair import read_synonyms
from tellapart.evaluation.facts.coco_instances import read_instances
from tellapart.evaluation.file_sets import FileSets, hard_pool, read_sets
from tellapart.evaluation.judges.caption_qa import ChoiceQuestion, read_questions
from tellapart.evaluation.matching import files_of, note_of
from tellapart.language.claim_tuples import Synonyms
from tellapart.types import Item
from tellapart.utils.listed_names import preview_ids


def read_object_inputs(synonyms: Path | None, instances: Path | None) -> tuple[Synonyms, dict[str, frozenset[str]]]:
    """Reads the files given by the settings ``synonyms`` and ``instances``. Raises `UsageError`."""
    if instances is not None and synonyms is None:
        raise UsageError(
            "instances uses COCO's object names; add --set synonyms=FILE to map the words of captions to them"
        )
    known = read_synonyms(synonyms) if synonyms is not None else Synonyms()
    return known, {} if instances is None else read_instances(instances, known)


def read_bag_sets(bags: Sequence[Path], dataset: Dataset | None) -> tuple[list[FileSets], list[str]]:
    """Reads the sets of ``--bags``, and matches their ids to the data like those of captions. Returns the sets and
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


def read_inputs(
    sets: Sequence[FileSets],
    distractors: str | None,
    ids: Sequence[str],
    dataset: Dataset | None,
    scorer: str | None,
) -> CandidateInputs:
    """Returns the sets of ``--bags``, the pool of ``--distractors``, and their pictures that have no captions.

    ``distractors``: a data set, or a list of ids of pictures in any split of ``dataset``.
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
                f"the data, such as '{bare[0]}'; pass captions of all of them and the data that contain them"
            )
    named = dict.fromkeys(id_ for own in sets for id_ in own.ids() if id_ not in captioned)
    candidates = [others[id_] for id_ in named if id_ in others]
    if distractors is not None:
        captions_of = [others[id_] for id_ in ids if id_ in others]
        if (path := Path(distractors).expanduser()).suffix == ".json" and is_id_list(path):
            if dataset is None:
                raise UsageError(
                    f"{distractors}: a list of ids requires --data, which contains their pictures; add --data SPEC"
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


def read_choice_questions(
    path: Path | None, ids: Sequence[str], items: Sequence[Item] | None
) -> tuple[dict[str, list[ChoiceQuestion]], list[str]]:
    """Returns CaptionQA's questions by picture id, and notes on matching and on pictures without questions.

    The file may identify pictures by file name. Raises `UsageError` if no question is about a captioned picture.
    """
    if path is None:
        return {}, []
    questions = read_questions(path)
    names, how = match_ids(questions, _captioned(ids, items), str(path))
    matched = {names[picture]: own for picture, own in questions.items() if picture in names and own}
    if not matched:
        raise UsageError(f"{path}: none of its pictures (such as '{next(iter(questions))}') has a caption")
    notes = note_of(how)
    if lacking := [id_ for id_ in ids if id_ not in matched]:
        notes.append(
            f"{path}: {len(lacking):,} of {len(ids):,} captioned pictures have no question "
            f"({preview_ids(lacking)}); CaptionQA leaves them out"
        )
    return matched, notes


def _captioned(ids: Sequence[str], items: Sequence[Item] | None) -> KnownIds:
    """Returns the captioned pictures, against which the names in another file are matched."""
    return KnownIds("the captions", ids, {} if items is None else {item.id: item.picture.name for item in items})


def read_queries(
    path: Path | None, ids: Sequence[str], items: Sequence[Item] | None
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the queries of the captioned pictures by id, and notes on matching and omissions.

    Raises `UsageError` if no query belongs to a captioned picture.
    """
    if path is None:
        return {}, []
    matched = match_captions(read_reference_file(path), _captioned(ids, items), str(path))
    wanted = set(ids)
    found = {
        key: kept for key, own in matched.texts.items() if key in wanted and (kept := [t for t in own if t.strip()])
    }
    if not found:
        raise UsageError(
            f"{path}: none of its queries belongs to a captioned picture; expected the ids of the captions"
        )
    notes = [matched.how] if matched.how else []
    if others := len(matched.texts) - len(found):
        notes.append(
            f"{path}: the queries of {others:,} pictures are omitted because these have no caption or no query text"
        )
    return found, notes


def read_confidences(
    paths: Mapping[str, Path], ids: Sequence[str], items: Sequence[Item] | None
) -> dict[str, dict[str, dict[Hashable, float]]]:
    """Reads the ``claims`` that ``tellapart caption --claims`` writes. Returns their shares by system, id and (kind,
    claim).

    Ignores files without claims and files other than JSON lines. Raises `UsageError` for a claim without kind, words or
    share.
    """
    found = {}
    for name, path in paths.items():
        if plain_suffix(path) not in (".jsonl", ".ndjson"):
            continue
        stated: dict[str, dict[Hashable, float]] = {}
        for where, row in read_rows(path):
            id_ = find_value(ID_KEYS, row) or find_value(PICTURE_KEYS, row)
            if id_ is not None and (claims := row.get("claims")):
                stated[str(id_)] = dict(_confidence(where, claim) for claim in claims)
        if stated:
            names, _ = match_ids(stated, _captioned(ids, items), str(path))
            found[name] = {names[own]: claims for own, claims in stated.items() if own in names}
    return found


def _confidence(where: str, claim: object) -> tuple[Hashable, float]:
    """Returns a claim's key, as in `tellapart.rewards.calibration`, and its share."""
    match claim:
        case {"kind": str(kind), "claim": [*words], "share": int(share) | float(share)} if 0 <= share <= 1:
            return (kind, tuple(words)), float(share)
    raise UsageError(
        f"{where}: expected claims such as {{'kind': 'object', 'claim': ['dog'], 'share': 0.7}}, got {claim!r}"
    )
