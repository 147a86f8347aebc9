"""Objectives: a batch to a loss.

A module holds an objective whole: its equations, its options in a recipe (``Config``), and its entry in `OBJECTIVES`.
`base` has the interface, `exploration` is the diversity term of paper 4.
"""

from __future__ import annotations

from tellapart.objectives.base import OBJECTIVES, Objective, ObjectiveEntry, ObjectiveOptions
from tellapart.objectives.contrastive import Contrastive
from tellapart.objectives.exploration import Exploration
from tellapart.objectives.mle import Mle, mle_head_loss, mle_loss, shift_labels
from tellapart.objectives.reinforce import (
    Baseline,
    Reinforce,
    RewardTerm,
    RunningMean,
    group_mean,
    leave_one_out,
    no_baseline,
)
from tellapart.objectives.smile import Smile, smile_head_loss, smile_loss
from tellapart.types import Loss

__all__ = [
    "OBJECTIVES",
    "Baseline",
    "Contrastive",
    "Exploration",
    "Loss",
    "Mle",
    "Objective",
    "ObjectiveEntry",
    "ObjectiveOptions",
    "Reinforce",
    "RewardTerm",
    "RunningMean",
    "Smile",
    "group_mean",
    "leave_one_out",
    "mle_head_loss",
    "mle_loss",
    "no_baseline",
    "shift_labels",
    "smile_head_loss",
    "smile_loss",
]
