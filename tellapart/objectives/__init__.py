"""Objectives: a batch to a loss."""

from tellapart.objectives.base import Loss, Objective
from tellapart.objectives.contrastive import Contrastive
from tellapart.objectives.exploration import Exploration
from tellapart.objectives.mle import Mle, mle_head_loss, mle_loss, shift_labels
from tellapart.objectives.reinforce import Reinforce, RewardTerm
from tellapart.objectives.smile import Smile, smile_head_loss, smile_loss

__all__ = [
    "Contrastive",
    "Exploration",
    "Loss",
    "Mle",
    "Objective",
    "Reinforce",
    "RewardTerm",
    "Smile",
    "mle_head_loss",
    "mle_loss",
    "shift_labels",
    "smile_head_loss",
    "smile_loss",
]
