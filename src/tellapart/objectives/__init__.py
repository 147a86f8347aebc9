"""Objectives compute the loss of a batch.

An objective's module contains its equations, its recipe options (``Config``), and its entry in `OBJECTIVES`. `base`
defines the interface. `baselines`, `caption_distances`, `caption_log_probs`, `exploration`, `max_at_k`, `reward_terms`
and `set_quality` are parts of `reinforce`, `labels` and `reference_loss` of the losses on references. `detail` trains
several levels of detail.
"""

from __future__ import annotations

from tellapart.objectives.base import OBJECTIVES, Objective, ObjectiveEntry, ObjectiveOptions
from tellapart.objectives.baselines import Baseline, RunningMean, group_mean, leave_one_out, no_baseline
from tellapart.objectives.contrastive import Contrastive
from tellapart.objectives.exploration import Exploration
from tellapart.objectives.gem import Gem, gem_loss
from tellapart.objectives.labels import shift_labels
from tellapart.objectives.max_at_k import MaxAtK, max_at_k
from tellapart.objectives.mle import Mle, mle_head_loss, mle_loss
from tellapart.objectives.reinforce import Reinforce
from tellapart.objectives.reward_terms import RewardTerm
from tellapart.objectives.set_quality import SetQuality
from tellapart.objectives.smile import Smile, smile_head_loss, smile_loss
from tellapart.objectives.sparsemax import Sparsemax, sparsemax_loss
from tellapart.types import Loss

__all__ = [
    "OBJECTIVES",
    "Baseline",
    "Contrastive",
    "Exploration",
    "Gem",
    "Loss",
    "MaxAtK",
    "Mle",
    "Objective",
    "ObjectiveEntry",
    "ObjectiveOptions",
    "Reinforce",
    "RewardTerm",
    "RunningMean",
    "SetQuality",
    "Smile",
    "Sparsemax",
    "gem_loss",
    "group_mean",
    "leave_one_out",
    "max_at_k",
    "mle_head_loss",
    "mle_loss",
    "no_baseline",
    "shift_labels",
    "smile_head_loss",
    "smile_loss",
    "sparsemax_loss",
]
