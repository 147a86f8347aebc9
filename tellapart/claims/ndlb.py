"""Paper 2 (No Detail Left Behind) from boosted captions to its tables: the arms, and tables 2, 3, 5 and 7 as printed.

The arms are the recipes ``recipes/ndlb_*.toml``; those that claims train already are shared with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tellapart.claims.catalogue import (
    ARMS,
    BOLD,
    CURRICULUM,
    FEW_PICTURES,
    RETRIEVAL,
    data,
    lora,
    mle,
    overlap,
    reward,
)
from tellapart.claims.claim import Arm

ALL = lora("vision", "mapper", "language_model")
PARTS = {"sr_l": lora("mapper", "language_model"), "sr_v": lora("vision"), "sr_lv": ALL}
RATE = 1e-3  # of LoRA, as in the arms of the claims
CIDER: dict[str, Any] = {"baseline": "greedy", "rate": 2e-4, "rewards": [overlap()]}
BOTH: dict[str, Any] = {"baseline": "greedy", "rate": RATE, "rewards": [RETRIEVAL, overlap(0.5)], "captioner": ALL}


def on(stage: str, arm: Arm) -> Arm:
    """The arm with boosted captions in place of its training pictures' references."""
    return replace(arm, boosted=stage)


def with_bags(name: str, start: str, part: str) -> Arm:
    return reward(name, start, captioner=PARTS[part], rate=RATE, bags=CURRICULUM, pictures=FEW_PICTURES)


LISTED = (
    on("blend", mle("ndlb_blended", **BOLD)),
    on("holistic", mle("ndlb_holistic", **BOLD)),
    reward("ndlb_blended_sr_l", "ndlb_blended", captioner=PARTS["sr_l"], rate=RATE),
    reward("ndlb_holistic_sr_l", "ndlb_holistic", captioner=PARTS["sr_l"], rate=RATE),
    with_bags("ndlb_sr_l_bags", "start", "sr_l"),
    with_bags("ndlb_sr_v_bags", "start", "sr_v"),
    with_bags("ndlb_holistic_sr_l_bags", "ndlb_holistic", "sr_l"),
    with_bags("ndlb_holistic_sr_v_bags", "ndlb_holistic", "sr_v"),
    with_bags("ndlb_holistic_sr_lv_bags", "ndlb_holistic", "sr_lv"),
    reward("ndlb_cider", **CIDER),
    on("holistic", reward("ndlb_holistic_cider", "ndlb_holistic", pictures=data(), **CIDER)),
    reward("ndlb_cider_sr_lv_bags", bags=CURRICULUM, pictures=FEW_PICTURES, **BOTH),
    on("holistic", reward("ndlb_holistic_cider_sr_lv_bags", "ndlb_holistic", bags=CURRICULUM, pictures=data(n=600),
                          **BOTH)),
)  # fmt: skip
SHARED = ("start", "references", "vcb_describe", "vcb_blend", "vcb_holistic", "sr_l", "sr_lv_bags")
NDLB = {arm.name: arm for arm in (*(ARMS[name] for name in SHARED), *LISTED)}

PLAIN, BLEND, HOLISTIC = "", "blend", "holistic"
SR = ("cider", "r1", "bag3", "bag5", "bag7")


@dataclass(frozen=True)
class Row:
    """One row of a printed table: its labels, the arm, whose captions CIDEr reads, the paper's figures."""

    labels: tuple[str, ...]
    arm: str
    stage: str
    paper: tuple[float, ...]


@dataclass(frozen=True)
class PaperTable:
    """``heads`` name the labels; ``measures`` the figures, in the paper's order."""

    number: int
    title: str
    heads: tuple[str, ...]
    measures: tuple[str, ...]
    rows: tuple[Row, ...]


TABLES = (
    PaperTable(
        2, "captions themselves", ("captions",), ("r1", "clipscore", "bag3", "bag5", "bag7"),
        (
            Row(("plain (COCO)",), "references", PLAIN, (80.9, 26.4, 51.1, 41.3, 39.6)),
            Row(("VisualCap",), "vcb_describe", PLAIN, (86.9, 32.2, 53.7, 42.7, 42.1)),
            Row(("BlendCap",), "vcb_blend", PLAIN, (88.9, 32.6, 53.6, 44.8, 43.4)),
            Row(("HolisticCap",), "vcb_holistic", PLAIN, (91.3, 33.4, 57.5, 48.1, 49.1)),
        ),
    ),
    PaperTable(
        3, "what self-retrieval starts from", ("MLE on", "training"),
        ("bleu4", "cider", "r1", "clipscore", "bag3", "bag5", "bag7"),
        (
            Row(("plain", "MLE"), "start", PLAIN, (33.2, 107.8, 76.5, 29.9, 50.8, 36.5, 33.8)),
            Row(("BlendCap", "MLE"), "ndlb_blended", BLEND, (19.7, 80.2, 84.9, 31.6, 51.8, 42.5, 42.2)),
            Row(("HolisticCap", "MLE"), "ndlb_holistic", HOLISTIC, (16.3, 26.6, 84.7, 31.7, 55.9, 43.7, 42.2)),
            Row(("plain", "SR-L"), "sr_l", PLAIN, (32.3, 108.2, 83.7, 30.2, 53.3, 42.3, 38.4)),
            Row(("BlendCap", "SR-L"), "ndlb_blended_sr_l", BLEND, (19.6, 80.1, 87.5, 31.7, 54.7, 47.5, 44.2)),
            Row(("HolisticCap", "SR-L"), "ndlb_holistic_sr_l", HOLISTIC, (17.0, 27.8, 87.6, 31.9, 59.1, 47.7, 46.5)),
        ),
    ),
    PaperTable(
        5, "with the bag curriculum", ("MLE on", "training", "BagCurri"), SR,
        (
            Row(("plain", "SR-L", ""), "sr_l", PLAIN, (108.2, 83.7, 53.3, 42.3, 38.4)),
            Row(("plain", "SR-L", "✓"), "ndlb_sr_l_bags", PLAIN, (103.4, 84.5, 53.7, 46.2, 41.5)),
            Row(("plain", "SR-V", "✓"), "ndlb_sr_v_bags", PLAIN, (85.8, 87.4, 63.1, 51.9, 49.3)),
            Row(("plain", "SR-LV", "✓"), "sr_lv_bags", PLAIN, (84.2, 85.8, 67.2, 56.3, 53.6)),
            Row(("HolisticCap", "SR-L", ""), "ndlb_holistic_sr_l", HOLISTIC, (27.8, 87.6, 59.1, 47.7, 46.5)),
            Row(("HolisticCap", "SR-L", "✓"), "ndlb_holistic_sr_l_bags", HOLISTIC, (31.3, 88.5, 58.4, 50.0, 49.5)),
            Row(("HolisticCap", "SR-V", "✓"), "ndlb_holistic_sr_v_bags", HOLISTIC, (25.8, 90.6, 64.0, 54.6, 54.1)),
            Row(("HolisticCap", "SR-LV", "✓"), "ndlb_holistic_sr_lv_bags", HOLISTIC, (29.7, 91.3, 65.2, 57.1, 57.1)),
        ),
    ),
    PaperTable(
        7, "CIDEr, self-retrieval, and both", ("MLE on", "CIDEr", "SR", "BagCurri"), SR,
        (
            Row(("plain", "", "", ""), "start", PLAIN, (107.8, 76.5, 50.8, 36.5, 33.8)),
            Row(("plain", "", "SR-L", ""), "sr_l", PLAIN, (108.2, 83.7, 53.3, 42.3, 38.4)),
            Row(("plain", "✓", "", ""), "ndlb_cider", PLAIN, (118.5, 79.1, 50.7, 37.3, 36.3)),
            Row(("plain", "", "SR-LV", "✓"), "sr_lv_bags", PLAIN, (84.2, 85.8, 67.2, 56.3, 53.6)),
            Row(("plain", "✓", "SR-LV", "✓"), "ndlb_cider_sr_lv_bags", PLAIN, (92.8, 89.0, 59.6, 51.2, 47.2)),
            Row(("HolisticCap", "", "", ""), "ndlb_holistic", HOLISTIC, (26.6, 84.7, 55.9, 43.7, 42.2)),
            Row(("HolisticCap", "", "SR-L", ""), "ndlb_holistic_sr_l", HOLISTIC, (27.8, 87.6, 59.1, 47.7, 46.5)),
            Row(("HolisticCap", "✓", "", ""), "ndlb_holistic_cider", HOLISTIC, (55.7, 86.9, 57.6, 47.1, 47.0)),
            Row(("HolisticCap", "", "SR-LV", "✓"), "ndlb_holistic_sr_lv_bags", HOLISTIC,
                (29.7, 91.3, 65.2, 57.1, 57.1)),
            Row(("HolisticCap", "✓", "SR-LV", "✓"), "ndlb_holistic_cider_sr_lv_bags", HOLISTIC,
                (38.0, 92.6, 67.7, 58.7, 57.9)),
        ),
    ),
)  # fmt: skip
