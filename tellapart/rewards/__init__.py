"""Rewards: one float for each caption, from a batch; NaN abstains. And what they are compared with."""

from tellapart.rewards.baselines import RunningMean, no_baseline
from tellapart.rewards.retrieval import SelfRetrieval

__all__ = ["RunningMean", "SelfRetrieval", "no_baseline"]
