"""Reads human ratings and comparisons of captions from every published layout (`read_judgements`).

| layout | file | looks like |
|---|---|---|
| flickr8k-expert | ExpertAnnotations.txt | picture, caption id, three ratings 1-4, tab-separated |
| flickr8k-cf | CrowdFlowerAnnotations.txt | picture, caption id, share of yes votes, number of yes and of no votes |
| clipscore | flickr8k.json, … | ``{id: {"image_path", "ground_truth": […], "human_judgement": […]}}`` |
| composite | 8k_correctness.csv, … | ``;``-separated, Input.image_url, Input.text1, …, Answer.Q1Answer, … |
| thumb | mscoco_THumB-1.0.jsonl | ``{"seg_id", "image", "hyp", "human_score", "P", "R", "SYS"}`` |
| foil | foilv1.0_test_2017.json | COCO layout; annotations with "foil", "foil_word", "target_word" |
| pascal-50s | pair_pascal.mat, with consensus_pascal.mat | MATLAB 5 |
| detailcaps | DetailCaps-4870's Parquet, or JSON lines | GT_Caption_*, one column for each model, GPT4_Eval |
| polaris | polaris_test.csv, or Parquet | imgid, mt or cand, refs (a list), score or human_score |
| nebula | nebula_test.csv, or Parquet, with spica_*.csv | the same columns |
| longcap-arena | desc_dci_val.csv, … | imgid, cand, refs, score; one file for each aspect and split |
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.evaluation.human_judgements.files_with_references import (
    SCORES,
    clipscore_json,
    detailcaps,
    longcap_arena,
    nebula,
    polaris,
    scored_layout,
)
from tellapart.evaluation.human_judgements.files_without_references import (
    composite,
    flickr8k_crowdflower,
    flickr8k_expert,
    foil,
    thumb,
)
from tellapart.evaluation.human_judgements.judgements import Judgements
from tellapart.evaluation.human_judgements.pascal_50s import pascal_50s
from tellapart.evaluation.human_judgements.records import open_parquet, text_of


def read_judgements(path: Path, layout: str | None = None, references: Sequence[Path] = ()) -> Judgements:
    """Reads human judgements. Infers the layout if none is given. Raises `UsageError`."""
    if layout is not None and layout not in LAYOUTS:
        raise UsageError(f"unknown layout of judgements '{layout}'{nearest(layout, LAYOUTS)}")
    if not path.is_file():
        raise UsageError(f"{path} does not exist; expected human judgements ({', '.join(LAYOUTS)})")
    name = layout or _recognise(path)
    try:
        found = LAYOUTS[name](path, references)
        if odd := [text for row in found.captions for text in (row.caption, *row.references) if type(text) is not str]:
            raise TypeError(f"a caption is {odd[0]!r}")
    except TellapartError:
        raise
    except Exception as error:  # the file is damaged or has another layout
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UsageError(
            f"{path} cannot be read in the layout {name} ({what}); choose another layout with --layout"
        ) from None
    if not found.captions:
        raise UsageError(f"{path} contains no judged caption in the layout {name}; choose another layout with --layout")
    return found


def _recognise(path: Path) -> str:
    if path.suffix == ".mat":
        return "pascal-50s"
    if path.suffix == ".parquet":
        names = set(open_parquet(path).schema_arrow.names)
        return "detailcaps" if "GPT4_Eval" in names or not names & set(SCORES) else scored_layout(path)
    text = text_of(path)
    first = text.partition("\n")[0]
    try:
        names = set(json.loads(first))
    except (TypeError, ValueError, RecursionError):
        names = set(next(csv.reader([first[:4096]]), []))
    for layout, key in (("detailcaps", "GPT4_Eval"), ("thumb", "hyp")):
        if key in names:
            return layout
    if "refs" in names and names & set(SCORES):
        return scored_layout(path)
    if text.lstrip().startswith("{"):
        return "foil" if '"foil_word"' in text else "clipscore"
    if "Answer.Q1Answer" in first:
        return "composite"
    cells = first.split("\t")
    if len(cells) == 5 and "#" in cells[1]:
        rows = [line.split("\t") for line in text.splitlines()[:2000] if line.strip()]
        return "flickr8k-cf" if all(_is_share(row) for row in rows) else "flickr8k-expert"
    raise UsageError(f"{path}: unknown layout; set it with --layout ({', '.join(LAYOUTS)})")


def _is_share(row: list[str]) -> bool:
    """Returns whether this is a row of the CrowdFlower file: its third cell must be the share of yes votes, which the
    last two cells count.
    """
    try:
        share, yes, no = map(float, row[2:5])
    except ValueError:
        return False
    return yes + no > 0 and math.isclose(share, yes / (yes + no), abs_tol=0.01)


Reader = Callable[[Path, Sequence[Path]], Judgements]
LAYOUTS: dict[str, Reader] = {
    "flickr8k-expert": flickr8k_expert,
    "flickr8k-cf": flickr8k_crowdflower,
    "clipscore": clipscore_json,
    "composite": composite,
    "thumb": thumb,
    "foil": foil,
    "pascal-50s": pascal_50s,
    "detailcaps": detailcaps,
    "polaris": polaris,
    "nebula": nebula,
    "longcap-arena": longcap_arena,
}
