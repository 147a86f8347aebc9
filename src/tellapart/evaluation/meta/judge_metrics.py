"""``tellapart study judges``: a file of human judgements to a table of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from tellapart.data.caption_files import preview_ids
from tellapart.errors import UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.judges.inputs import JudgeInputs
from tellapart.evaluation.meta.agreement import AgreementTable, measure_agreement
from tellapart.evaluation.meta.layouts import read_judgements
from tellapart.evaluation.object_inputs import read_object_inputs

if TYPE_CHECKING:
    from tellapart.evaluation.meta.judgements import Judgements


def agreement_with_people(
    file: Path,
    references: Sequence[Path] = (),
    layout: str | None = None,
    metrics: Sequence[str] | None = None,
    *,
    data: str | None = None,
    scorer: str | None = None,
    synonyms: Path | None = None,
    judge: JudgeInputs | None = None,
    resamples: int = 0,
    seed: int = 0,
) -> AgreementTable:
    """Read judgements and measure metrics against them (`measure_agreement`). Raises `UsageError`.

    ``synonyms``: of objects, for CHAIR and facts. ``judge``: a model behind a server, for metrics such as CLAIR.
    """
    if scorer is not None and data is None:
        raise UsageError("a scorer needs pictures; add --data SPEC")
    objects = read_object_inputs(synonyms, None)
    judgements = read_judgements(file, layout, references)
    if data is not None:
        context, notes = _with_pictures(judgements, data, scorer)
    else:
        own = [list(row.references) for row in judgements.captions]
        context, notes = EvalContext([str(row) for row in range(len(own))], None, own), []
    context.synonyms, context.judge = objects.synonyms, (judge or JudgeInputs()).open()
    found = measure_agreement(judgements, metrics, context=context, resamples=resamples, seed=seed)
    found.notes += notes
    if note := context.long_note():
        found.notes.append(note)
    if context.judge is not None:
        found.notes += context.loaded_judge.notes()
    return found


def _with_pictures(judgements: Judgements, data: str, scorer: str | None) -> tuple[EvalContext, list[str]]:
    """A context with a picture for each of the judged captions, and notes. Raises `UsageError` where one is missing."""
    from tellapart.data import open_data
    from tellapart.evaluation.model_inputs import load_scorers

    dataset = open_data(data)
    known = {name: item for item in dataset for name in _names(item.id, item.picture.name)}
    rows = {
        row.picture: next((known[n] for n in _names(row.picture) if n in known), None) for row in judgements.captions
    }
    if lacking := [name for name, item in rows.items() if item is None]:
        raise UsageError(
            f"{len(lacking):,} of {len(rows):,} judged pictures are not in the data ({preview_ids(lacking)}); "
            "give the data set that the judgements are of"
        )
    items = {item.id: item for item in rows.values() if item is not None}
    distinct = list(items.values())
    notes: list[str] = []
    models, readable = load_scorers([scorer] if scorer else [], distinct, notes)
    if readable is not None and len(readable) < len(distinct):
        raise UsageError(f"{len(distinct) - len(readable):,} judged pictures cannot be read; give whole pictures")
    item_N = [rows[row.picture] for row in judgements.captions]
    # Ids are those of captions: a picture has one row for each.
    own = [replace(item, id=f"{place}") for place, item in enumerate(item_N) if item is not None]
    references = [list(row.references) for row in judgements.captions]
    ids = [item.id for item in own]
    if not models:
        return EvalContext(ids, own, references), notes
    place = {item.id: row for row, item in enumerate(distinct)}
    feature_ND = np.asarray(models[0][1])[[place[item.id] for item in item_N if item is not None]]
    return EvalContext(ids, own, references, models[0][0], feature_ND), notes


def _names(*names: str) -> list[str]:
    files = [PurePosixPath(name.replace("\\", "/")).name for name in names]
    return list(dict.fromkeys([*names, *files, *(file.rpartition(".")[0] or file for file in files)]))
