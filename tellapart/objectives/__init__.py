"""Objectives: a batch to a loss."""

from tellapart.objectives.base import Loss, Objective
from tellapart.objectives.contrastive import Contrastive
from tellapart.objectives.mle import Mle, mle_loss
from tellapart.objectives.reinforce import Reinforce

__all__ = ["Contrastive", "Loss", "Mle", "Objective", "Reinforce", "mle_loss"]
