"""Objectives: a batch to a loss.

A module holds an objective whole: its equations, its options in a recipe (``Config``), and its entry in `OBJECTIVES`.
`base` has the interface, `exploration` is the diversity term of paper 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellapart.utils.registry import lazily

_WHERE = {
    "Baseline": "reinforce",
    "Contrastive": "contrastive",
    "Exploration": "exploration",
    "Loss": "base",
    "Mle": "mle",
    "OBJECTIVES": "base",
    "Objective": "base",
    "ObjectiveEntry": "base",
    "ObjectiveOptions": "base",
    "Reinforce": "reinforce",
    "RewardTerm": "reinforce",
    "RunningMean": "reinforce",
    "Smile": "smile",
    "group_mean": "reinforce",
    "leave_one_out": "reinforce",
    "mle_head_loss": "mle",
    "mle_loss": "mle",
    "no_baseline": "reinforce",
    "shift_labels": "mle",
    "smile_head_loss": "smile",
    "smile_loss": "smile",
}

if TYPE_CHECKING:
    from tellapart.objectives.base import OBJECTIVES as OBJECTIVES
    from tellapart.objectives.base import Objective as Objective
    from tellapart.objectives.base import ObjectiveEntry as ObjectiveEntry
    from tellapart.objectives.base import ObjectiveOptions as ObjectiveOptions
    from tellapart.objectives.contrastive import Contrastive as Contrastive
    from tellapart.objectives.exploration import Exploration as Exploration
    from tellapart.objectives.mle import Mle as Mle
    from tellapart.objectives.mle import mle_head_loss as mle_head_loss
    from tellapart.objectives.mle import mle_loss as mle_loss
    from tellapart.objectives.mle import shift_labels as shift_labels
    from tellapart.objectives.reinforce import Baseline as Baseline
    from tellapart.objectives.reinforce import Reinforce as Reinforce
    from tellapart.objectives.reinforce import RewardTerm as RewardTerm
    from tellapart.objectives.reinforce import RunningMean as RunningMean
    from tellapart.objectives.reinforce import group_mean as group_mean
    from tellapart.objectives.reinforce import leave_one_out as leave_one_out
    from tellapart.objectives.reinforce import no_baseline as no_baseline
    from tellapart.objectives.smile import Smile as Smile
    from tellapart.objectives.smile import smile_head_loss as smile_head_loss
    from tellapart.objectives.smile import smile_loss as smile_loss
    from tellapart.types import Loss as Loss

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
