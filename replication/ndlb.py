"""The arms of paper 2 (No Detail Left Behind), from boosted captions on, and its tables 2, 3, 5 and 7 as printed.

The arms are the recipes ``recipes/ndlb_*.toml``. Those that claims train, too, are shared with them.
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
    """The arm with boosted captions in place of the references of its training pictures."""
    return replace(arm, boosted=stage)


def with_bag_curriculum(name: str, start: str, part: str) -> Arm:
    """Self-retrieval with paper 2's curriculum of bags."""
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

PLAIN, BLEND, HOLISTIC = "", "blend", "holistic"
SR_MEASURES = ("cider", "r1", "bag3", "bag5", "bag7")


@dataclass(frozen=True)
class PaperRow:
    """One row of a printed table: its labels, our arm, and the paper's figures.

    stage: the stage of boosting whose captions CIDEr and BLEU-4 take for references; empty for the references.
    """

    labels: tuple[str, ...]
    arm: str
    stage: str
    paper: tuple[float, ...]


@dataclass(frozen=True)
class PaperTable:
    """A printed table. label_columns, measures: the columns of labels and of figures, in the paper's order."""

    number: int
    title: str
    label_columns: tuple[str, ...]
    measures: tuple[str, ...]
    rows: tuple[PaperRow, ...]


TABLES = (
    PaperTable(
        2,
        "captions themselves",
        ("captions",),
        ("r1", "clipscore", "bag3", "bag5", "bag7"),
        (
            PaperRow(("plain (COCO)",), "references", PLAIN, (80.9, 26.4, 51.1, 41.3, 39.6)),
            PaperRow(("VisualCap",), "vcb_describe", PLAIN, (86.9, 32.2, 53.7, 42.7, 42.1)),
            PaperRow(("BlendCap",), "vcb_blend", PLAIN, (88.9, 32.6, 53.6, 44.8, 43.4)),
            PaperRow(("HolisticCap",), "vcb_holistic", PLAIN, (91.3, 33.4, 57.5, 48.1, 49.1)),
        ),
    ),
    PaperTable(
        3,
        "what self-retrieval starts from",
        ("MLE on", "training"),
        ("bleu4", "cider", "r1", "clipscore", "bag3", "bag5", "bag7"),
        (
            PaperRow(("plain", "MLE"), "start", PLAIN, (33.2, 107.8, 76.5, 29.9, 50.8, 36.5, 33.8)),
            PaperRow(("BlendCap", "MLE"), "ndlb_blended", BLEND, (19.7, 80.2, 84.9, 31.6, 51.8, 42.5, 42.2)),
            PaperRow(("HolisticCap", "MLE"), "ndlb_holistic", HOLISTIC, (16.3, 26.6, 84.7, 31.7, 55.9, 43.7, 42.2)),
            PaperRow(("plain", "SR-L"), "sr_l", PLAIN, (32.3, 108.2, 83.7, 30.2, 53.3, 42.3, 38.4)),
            PaperRow(("BlendCap", "SR-L"), "ndlb_blended_sr_l", BLEND, (19.6, 80.1, 87.5, 31.7, 54.7, 47.5, 44.2)),
            PaperRow(
                ("HolisticCap", "SR-L"), "ndlb_holistic_sr_l", HOLISTIC, (17.0, 27.8, 87.6, 31.9, 59.1, 47.7, 46.5)
            ),
        ),
    ),
    PaperTable(
        5,
        "with the bag curriculum",
        ("MLE on", "training", "BagCurri"),
        SR_MEASURES,
        (
            PaperRow(("plain", "SR-L", ""), "sr_l", PLAIN, (108.2, 83.7, 53.3, 42.3, 38.4)),
            PaperRow(("plain", "SR-L", "✓"), "ndlb_sr_l_bags", PLAIN, (103.4, 84.5, 53.7, 46.2, 41.5)),
            PaperRow(("plain", "SR-V", "✓"), "ndlb_sr_v_bags", PLAIN, (85.8, 87.4, 63.1, 51.9, 49.3)),
            PaperRow(("plain", "SR-LV", "✓"), "sr_lv_bags", PLAIN, (84.2, 85.8, 67.2, 56.3, 53.6)),
            PaperRow(("HolisticCap", "SR-L", ""), "ndlb_holistic_sr_l", HOLISTIC, (27.8, 87.6, 59.1, 47.7, 46.5)),
            PaperRow(("HolisticCap", "SR-L", "✓"), "ndlb_holistic_sr_l_bags", HOLISTIC, (31.3, 88.5, 58.4, 50.0, 49.5)),
            PaperRow(("HolisticCap", "SR-V", "✓"), "ndlb_holistic_sr_v_bags", HOLISTIC, (25.8, 90.6, 64.0, 54.6, 54.1)),
            PaperRow(
                ("HolisticCap", "SR-LV", "✓"), "ndlb_holistic_sr_lv_bags", HOLISTIC, (29.7, 91.3, 65.2, 57.1, 57.1)
            ),
        ),
    ),
    PaperTable(
        7,
        "CIDEr, self-retrieval, and both",
        ("MLE on", "CIDEr", "SR", "BagCurri"),
        SR_MEASURES,
        (
            PaperRow(("plain", "", "", ""), "start", PLAIN, (107.8, 76.5, 50.8, 36.5, 33.8)),
            PaperRow(("plain", "", "SR-L", ""), "sr_l", PLAIN, (108.2, 83.7, 53.3, 42.3, 38.4)),
            PaperRow(("plain", "✓", "", ""), "ndlb_cider", PLAIN, (118.5, 79.1, 50.7, 37.3, 36.3)),
            PaperRow(("plain", "", "SR-LV", "✓"), "sr_lv_bags", PLAIN, (84.2, 85.8, 67.2, 56.3, 53.6)),
            PaperRow(("plain", "✓", "SR-LV", "✓"), "ndlb_cider_sr_lv_bags", PLAIN, (92.8, 89.0, 59.6, 51.2, 47.2)),
            PaperRow(("HolisticCap", "", "", ""), "ndlb_holistic", HOLISTIC, (26.6, 84.7, 55.9, 43.7, 42.2)),
            PaperRow(("HolisticCap", "", "SR-L", ""), "ndlb_holistic_sr_l", HOLISTIC, (27.8, 87.6, 59.1, 47.7, 46.5)),
            PaperRow(("HolisticCap", "✓", "", ""), "ndlb_holistic_cider", HOLISTIC, (55.7, 86.9, 57.6, 47.1, 47.0)),
            PaperRow(
                ("HolisticCap", "", "SR-LV", "✓"), "ndlb_holistic_sr_lv_bags", HOLISTIC, (29.7, 91.3, 65.2, 57.1, 57.1)
            ),
            PaperRow(
                ("HolisticCap", "✓", "SR-LV", "✓"),
                "ndlb_holistic_cider_sr_lv_bags",
                HOLISTIC,
                (38.0, 92.6, 67.7, 58.7, 57.9),
            ),
        ),
    ),
)
