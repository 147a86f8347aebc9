"""Rewards: one float per caption or per token. NaN means that the reward abstains.

A reward's module contains its recipe options, the reward itself, and its entry in `REWARDS`; `text_metrics` defines
three rewards. `base` defines the interface, and `run_parts` what a reward can be built from. `speaker`,
`start_samples`, `evidence` and `several_scorers` are parts of rewards. `tellapart.language` extracts words from
captions.
"""

from __future__ import annotations

from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions
from tellapart.rewards.calibration import Calibration
from tellapart.rewards.cider import CiderReward
from tellapart.rewards.claims import ClaimReward
from tellapart.rewards.exact_truth import ExactTruth
from tellapart.rewards.paid_words import PaidWords, Price, WordEffects
from tellapart.rewards.pmi import MutualInformation
from tellapart.rewards.retrieval import SelfRetrieval, self_retrieval
from tellapart.rewards.several_scorers import Alternating, Averaged
from tellapart.rewards.speaker import Speaker
from tellapart.rewards.text_metrics import MetricReward

__all__ = [
    "REWARDS",
    "Alternating",
    "Averaged",
    "Calibration",
    "CiderReward",
    "ClaimReward",
    "ExactTruth",
    "MetricReward",
    "MutualInformation",
    "PaidWords",
    "Price",
    "Reward",
    "RewardEntry",
    "RewardOptions",
    "SelfRetrieval",
    "Speaker",
    "WordEffects",
    "self_retrieval",
]
