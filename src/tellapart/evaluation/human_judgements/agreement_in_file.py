"""``tellapart study judges``: measures how well metrics agree with the human judgements in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tellapart.data import open_data
from tellapart.data.caption_matching import KnownIds, match_ids
from tellapart.errors import UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.facts.object_inputs import read_object_inputs
from tellapart.evaluation.human_judgements.agreement import measure_agreement
from tellapart.evaluation.human_judgements.agreement_table import AgreementTable
from tellapart.evaluation.human_judgements.layouts import read_judgements
from tellapart.evaluation.judge_options import JudgeOptions
from tellapart.types import Item
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
    judge: JudgeOptions | None = None,
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
    # Ids identify captions, so a picture has one row per caption.
    ids = [str(row) for row in range(len(judgements.captions))]
    context = EvalContext(ids, None, [list(row.references) for row in judgements.captions])
    notes: list[str] = []
    if data is not None:
        pictures = _judged_pictures([row.picture for row in judgements.captions], data, file)
        context.items = [replace(item, id=id_) for id_, item in zip(ids, pictures, strict=True)]
        if scorer is not None:
            from tellapart.evaluation.models import load_scorers

            distinct = list({item.id: item for item in pictures}.values())
            ((context.scorer, feature_ND),), readable = load_scorers([scorer], distinct, notes)
            if lost := len(distinct) - len(readable or ()):
                raise UsageError(f"{lost:,} judged pictures cannot be read; all judged pictures must be readable")
            row_of = {item.id: row for row, item in enumerate(distinct)}
            context.image_ND = feature_ND[[row_of[item.id] for item in pictures]]
    context.inputs = EvalInputs(synonyms=read_object_inputs(synonyms, None)[0], judge=(judge or JudgeOptions()).open())
    table = measure_agreement(judgements, metrics, context=context, resamples=resamples, seed=seed, repeats=repeats)
    table.notes += [*notes, *filter(None, [context.long_note()])]
    if context.inputs.judge is not None:
        table.notes += context.loaded_judge.notes()
    return table


def _judged_pictures(names: Sequence[str], data: str, file: Path) -> list[Item]:
    """Returns the item of each named picture, matched by id, file name, stem or number. Raises `UsageError` for missing
    pictures.
    """
    item_of = {item.id: item for item in open_data(data)}
    ids, _ = match_ids(names, KnownIds.of("the data", item_of.values()), str(file))
    distinct = dict.fromkeys(names)
    if lacking := [name for name in distinct if name not in ids]:
        raise UsageError(
            f"{len(lacking):,} of {len(distinct):,} judged pictures are not in the data ({preview_ids(lacking)}); "
            "pass --data with the data set that was judged"
        )
    return [item_of[ids[name]] for name in names]
