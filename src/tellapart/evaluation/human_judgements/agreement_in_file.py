"""``tellapart study judges``: measures how well metrics agree with the human judgements in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.facts.object_inputs import read_object_inputs
from tellapart.evaluation.human_judgements.agreement import measure_agreement
from tellapart.evaluation.human_judgements.agreement_table import AgreementTable
from tellapart.evaluation.human_judgements.judgements import Judgements
from tellapart.evaluation.human_judgements.layouts import read_judgements
from tellapart.evaluation.judge_inputs import JudgeInputs
from tellapart.utils.listed_names import preview_ids


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
    repeats: int = 1,
) -> AgreementTable:
    """Reads judgements and measures how well metrics agree with them (`measure_agreement`). Raises `UsageError`.

    synonyms: a synonym file, for CHAIR and facts. judge: a model on a server, for metrics like CLAIR.
    """
    if scorer is not None and data is None:
        raise UsageError("a scorer requires pictures; add --data SPEC")
    if repeats > 1 and (judge is None or judge.llm_judge is None):
        raise UsageError("--repeats requires a judge; add --llm-judge openai:MODEL@URL")
    judgements = read_judgements(file, layout, references)
    if data is not None:
        context, notes = _with_pictures(judgements, data, scorer)
    else:
        own = [list(row.references) for row in judgements.captions]
        context, notes = EvalContext([str(row) for row in range(len(own))], None, own), []
    context.inputs = EvalInputs(synonyms=read_object_inputs(synonyms, None)[0], judge=(judge or JudgeInputs()).open())
    found = measure_agreement(judgements, metrics, context=context, resamples=resamples, seed=seed, repeats=repeats)
    found.notes += notes
    if note := context.long_note():
        found.notes.append(note)
    if context.inputs.judge is not None:
        found.notes += context.loaded_judge.notes()
    return found


def _with_pictures(judgements: Judgements, data: str, scorer: str | None) -> tuple[EvalContext, list[str]]:
    """Returns a context with one picture per judged caption, and notes. Raises `UsageError` for missing pictures."""
    dataset = open_data(data)
    known = {name: item for item in dataset for name in _names(item.id, item.picture.name)}
    rows = {
        row.picture: next((known[n] for n in _names(row.picture) if n in known), None) for row in judgements.captions
    }
    if lacking := [name for name, item in rows.items() if item is None]:
        raise UsageError(
            f"{len(lacking):,} of {len(rows):,} judged pictures are not in the data ({preview_ids(lacking)}); "
            "pass --data with the data set that was judged"
        )
    items = {item.id: item for item in rows.values() if item is not None}
    distinct = list(items.values())
    notes: list[str] = []
    from tellapart.evaluation.models import load_scorers

    models, readable = load_scorers([scorer] if scorer else [], distinct, notes)
    if readable is not None and len(readable) < len(distinct):
        raise UsageError(
            f"{len(distinct) - len(readable):,} judged pictures cannot be read; all judged pictures must be readable"
        )
    item_N = [rows[row.picture] for row in judgements.captions]
    # Ids identify captions, so a picture has one row per caption.
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
