"""Rewards: one float for each caption, from a batch; NaN abstains. And what they are compared with."""

from tellapart.rewards.baselines import RunningMean, leave_one_out, no_baseline
from tellapart.rewards.combine import Alternating, Averaged
from tellapart.rewards.overlap import Bleu, Cider
from tellapart.rewards.retrieval import SelfRetrieval, self_retrieval

__all__ = [
    "Alternating",
    "Averaged",
    "Bleu",
    "Cider",
    "RunningMean",
    "SelfRetrieval",
    "leave_one_out",
    "no_baseline",
    "self_retrieval",
]
