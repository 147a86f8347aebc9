"""The arms of paper 2 (No Detail Left Behind), starting from boosted captions, and miniatures of its tables.

The tables are those in `tellapart.recipe.paper_tables` whose columns and rows all have a counterpart on `scenes`. The
arms are the recipes ``recipes/ndlb_*.toml``. Arms that claims train, too, are shared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from replication.arms import (
    ARMS,
    CURRICULUM,
    FEW_PICTURES,
    HIGH_RATE,
    RETRIEVAL,
    data,
    lora,
    mle,
    overlap,
    reward,
)
from replication.claim import Arm
from tellapart.recipe.paper_tables import Paper, read_paper
from tellapart.recipe.paper_tables import PaperTable as Definition

ALL_PARTS = lora("vision", "language_model")
PARTS = {"sr_l": lora("language_model"), "sr_v": lora("vision"), "sr_lv": ALL_PARTS}
LORA_RATE = 1e-3  # learning rate of LoRA, as in the arms of the claims
CIDER: dict[str, Any] = {"baseline": "greedy", "rate": 2e-4, "rewards": [overlap()]}
BOTH: dict[str, Any] = {
    "baseline": "greedy",
    "rate": LORA_RATE,
    "rewards": [RETRIEVAL, overlap(0.5)],
    "captioner": ALL_PARTS,
}


def with_boosted_references(stage: str, arm: Arm) -> Arm:
    """Returns the arm, with boosted captions instead of its training pictures' references."""
    return replace(arm, boosted=stage)


def with_bag_curriculum(name: str, start: str, part: str) -> Arm:
    """Returns a self-retrieval arm with paper 2's curriculum of bags."""
    return reward(name, start, captioner=PARTS[part], rate=LORA_RATE, bags=CURRICULUM, pictures=FEW_PICTURES)


NDLB_ARMS = (
    with_boosted_references("blend", mle("ndlb_blended", **HIGH_RATE)),
    with_boosted_references("holistic", mle("ndlb_holistic", **HIGH_RATE)),
    reward("ndlb_blended_sr_l", "ndlb_blended", captioner=PARTS["sr_l"], rate=LORA_RATE),
    reward("ndlb_holistic_sr_l", "ndlb_holistic", captioner=PARTS["sr_l"], rate=LORA_RATE),
    with_bag_curriculum("ndlb_sr_l_bags", "start", "sr_l"),
    with_bag_curriculum("ndlb_sr_v_bags", "start", "sr_v"),
    with_bag_curriculum("ndlb_holistic_sr_l_bags", "ndlb_holistic", "sr_l"),
    with_bag_curriculum("ndlb_holistic_sr_v_bags", "ndlb_holistic", "sr_v"),
    with_bag_curriculum("ndlb_holistic_sr_lv_bags", "ndlb_holistic", "sr_lv"),
    reward("ndlb_cider", **CIDER),
    with_boosted_references("holistic", reward("ndlb_holistic_cider", "ndlb_holistic", pictures=data(), **CIDER)),
    reward("ndlb_cider_sr_lv_bags", bags=CURRICULUM, pictures=FEW_PICTURES, **BOTH),
    with_boosted_references(
        "holistic",
        reward("ndlb_holistic_cider_sr_lv_bags", "ndlb_holistic", bags=CURRICULUM, pictures=data(n=600), **BOTH),
    ),
)
SHARED = ("start", "references", "vcb_describe", "vcb_blend", "vcb_holistic", "sr_l", "sr_lv_bags")
NDLB = {arm.name: arm for arm in (*(ARMS[name] for name in SHARED), *NDLB_ARMS)}


@dataclass(frozen=True)
class PaperRow:
    """One row of a printed table: its labels, our arm, and the paper's figures.

    stage: the boosting stage whose captions CIDEr and BLEU-4 use as references, or "" to use the data's references.
    """

    labels: tuple[str, ...]
    arm: str
    stage: str
    paper: tuple[float, ...]


@dataclass(frozen=True)
class PaperTable:
    """A printed table. label_columns, measures: the label columns and the figure columns, in the paper's order."""

    number: int
    title: str
    label_columns: tuple[str, ...]
    measures: tuple[str, ...]
    rows: tuple[PaperRow, ...]


def on_scenes(paper: Paper, table: Definition) -> PaperTable:
    """Returns the miniature of a table in the paper, with our arms and measures instead of the paper's systems and
    columns.
    """
    rows = []
    for row in table.rows:
        system = paper.systems[row.system]
        rows.append(PaperRow(row.labels, system.scenes, system.stage, tuple(float(figure) for figure in row.paper)))
    return PaperTable(int(table.id), table.title, table.labels, tuple(c.scenes for c in table.columns), tuple(rows))


TABLES = tuple(
    on_scenes(read_paper(2), table)
    for table in read_paper(2).tables
    if all(column.scenes for column in table.columns)
    and all(read_paper(2).systems[row.system].scenes for row in table.rows)
)
