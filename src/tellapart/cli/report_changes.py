"""``tellapart report changes``: compares two caption files picture by picture."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import rich.console
import typer

from tellapart.cli.options import Device, Json
from tellapart.cli.output import show
from tellapart.data import open_data
from tellapart.data.caption_files import read_caption_file
from tellapart.errors import UsageError
from tellapart.evaluation.changes import Changes, find_falls, find_only_right
from tellapart.evaluation.facts import check_tagger
from tellapart.evaluation.matching import match_files, read_references
from tellapart.evaluation.prepare import lists_of, references_of
from tellapart.utils.messages import say
from tellapart.utils.tables import table_of


def changes(
    before: Path,
    after: Path,
    data: Annotated[str, typer.Option()],
    references: Path | None = None,
    scorer: str | None = None,
    top: Annotated[int, typer.Option(min=1, metavar="N")] = 20,
    allow_missing: bool = False,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """List captions whose CIDEr fell most (hallucinated, equal, better), and pictures that only AFTER identifies.

    Args:
        before: Captions of the old system, in any layout that eval reads.
        after: Captions of the new system, for the same pictures.
        data: Pictures with references or scenes, as kind:path?key=value.
        references: Reference captions, if the data contains none.
        scorer: Scorer, to find captions that only the new system gets right.
        top: Number of pictures to show per kind of decrease.
        allow_missing: Compare only the pictures that have a caption in both files.
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
    show(asdict(found), lambda: changes_tables(found), as_json)


def changes_tables(found: Changes) -> rich.console.Group:
    """Formats the decreases, and the captions that only the new system gets right, for the terminal."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.kinds.items())
    title = (
        f"CIDEr decreases on {found.fallen:,} of {found.pictures:,} pictures: {kinds}; the largest decreases of each "
        f"kind (according to {found.judged_by})"
    )
    rows = [
        (one.id, one.kind, *(f"{a:.0f} → {b:.0f}" for a, b in (one.cider, one.correct, one.false)), one.before,
         one.after)
        for one in found.falls
    ]  # fmt: skip
    falls = table_of(("picture", "kind", "CIDEr", "correct", "false", "before", "after"), rows, title)
    if not found.retrieval:
        return rich.console.Group(falls)
    who = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in found.retrieval.items())
    right = [(one.id, one.before, one.after) for one in found.only_after]
    only = table_of(("picture", "before", "after"), right, f"Only the new system is right ({who})")
    return rich.console.Group(falls, only)
