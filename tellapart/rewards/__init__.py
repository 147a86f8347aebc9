"""Rewards: one float for each caption, from a batch; NaN abstains. And what they are compared with."""

from tellapart.rewards.baselines import RunningMean, leave_one_out, no_baseline
from tellapart.rewards.retrieval import SelfRetrieval

__all__ = ["RunningMean", "SelfRetrieval", "leave_one_out", "no_baseline"]
