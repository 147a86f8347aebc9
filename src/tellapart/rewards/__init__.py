"""Rewards: one float per caption or per token; NaN abstains.

A module holds a reward whole: its options in a recipe (``Config``), the reward itself, and its entry in `REWARDS`.
`base` has the interface, and `tellapart.language` the words of captions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellapart.utils.registry import lazily

_WHERE = {
    "Alternating": "retrieval",
    "Averaged": "retrieval",
    "BleuReward": "bleu",
    "CiderReward": "cider",
    "REWARDS": "base",
    "Reward": "base",
    "RewardEntry": "base",
    "RewardOptions": "base",
    "SelfRetrieval": "retrieval",
    "ExactTruth": "exact_truth",
    "MutualInformation": "speaker",
    "PaidWords": "paid_words",
    "Price": "paid_words",
    "Speaker": "speaker",
    "WordEffects": "paid_words",
    "self_retrieval": "retrieval",
}

if TYPE_CHECKING:
    from tellapart.rewards.base import REWARDS as REWARDS
    from tellapart.rewards.base import Reward as Reward
    from tellapart.rewards.base import RewardEntry as RewardEntry
    from tellapart.rewards.base import RewardOptions as RewardOptions
    from tellapart.rewards.bleu import BleuReward as BleuReward
    from tellapart.rewards.cider import CiderReward as CiderReward
    from tellapart.rewards.exact_truth import ExactTruth as ExactTruth
    from tellapart.rewards.paid_words import PaidWords as PaidWords
    from tellapart.rewards.paid_words import Price as Price
    from tellapart.rewards.paid_words import WordEffects as WordEffects
    from tellapart.rewards.retrieval import Alternating as Alternating
    from tellapart.rewards.retrieval import Averaged as Averaged
    from tellapart.rewards.retrieval import SelfRetrieval as SelfRetrieval
    from tellapart.rewards.retrieval import self_retrieval as self_retrieval
    from tellapart.rewards.speaker import MutualInformation as MutualInformation
    from tellapart.rewards.speaker import Speaker as Speaker

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
