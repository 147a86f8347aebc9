"""Reads files beside captions: objects for CHAIR and facts, CaptionQA's questions, and search queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tellapart.data.caption_files import read_reference_file
from tellapart.data.caption_matching import KnownIds, match_captions, match_ids
from tellapart.errors import UsageError
from tellapart.evaluation.facts.chair import read_synonyms
from tellapart.evaluation.facts.coco_instances import read_instances
from tellapart.evaluation.judges.caption_qa import ChoiceQuestion, read_questions
from tellapart.evaluation.matching import note_of
from tellapart.language.claim_tuples import Synonyms
from tellapart.types import Item
from tellapart.utils.listed_names import preview_ids


def read_object_inputs(synonyms: Path | None, instances: Path | None) -> tuple[Synonyms, dict[str, frozenset[str]]]:
    """Reads the files given in the settings ``synonyms`` and ``instances``. Raises `UsageError`."""
    if instances is not None and synonyms is None:
        raise UsageError(
            "instances uses COCO's object names; add --set synonyms=FILE to map the words in captions to these names"
        )
    known = read_synonyms(synonyms) if synonyms is not None else Synonyms()
    return known, {} if instances is None else read_instances(instances, known)


def read_choice_questions(
    path: Path | None, ids: Sequence[str], items: Sequence[Item] | None
) -> tuple[dict[str, list[ChoiceQuestion]], list[str]]:
    """Returns CaptionQA's questions by picture id, and notes on how pictures were matched and which have no questions.

    The questions file may identify pictures by file name. Raises `UsageError` if no question is about a captioned
    picture.
    """
    if path is None:
        return {}, []
    questions = read_questions(path)
    names, how = match_ids(questions, captioned_ids(ids, items), str(path))
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


def captioned_ids(ids: Sequence[str], items: Sequence[Item] | None) -> KnownIds:
    """Returns the captioned pictures, so that names in another file can be matched to them."""
    return KnownIds("the captions", ids, {} if items is None else {item.id: item.picture.name for item in items})


def read_queries(
    path: Path | None, ids: Sequence[str], items: Sequence[Item] | None
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the queries for captioned pictures by id, and notes on how pictures were matched and what was omitted.

    Raises `UsageError` if no query belongs to a captioned picture.
    """
    if path is None:
        return {}, []
    matched = match_captions(read_reference_file(path), captioned_ids(ids, items), str(path))
    wanted = set(ids)
    found = {
        key: kept for key, own in matched.texts.items() if key in wanted and (kept := [t for t in own if t.strip()])
    }
    if not found:
        raise UsageError(
            f"{path}: none of its queries belongs to a captioned picture; expected the same ids as in the caption files"
        )
    notes = [matched.how] if matched.how else []
    if others := len(matched.texts) - len(found):
        notes.append(
            f"{path}: the queries for {others:,} pictures are omitted because they are empty "
            "or the picture has no caption"
        )
    return found, notes
