"""Rewards and bags for TRL's `GRPOTrainer` and `RLOOTrainer` (``pip install 'tellapart[trl]'``).

On each rank, TRL calls a reward function with that rank's rows: ``completions`` and every column of the data set, with
each picture repeated once per generation. Afterwards, TRL gathers only the rewards. A reward that compares pictures
therefore has to gather the pictures, and counts each picture once, however many captions it has.
"""

from tellapart.integrations.trl.bags import bag_order
from tellapart.integrations.trl.cider_reward import cider
from tellapart.integrations.trl.mutual_information import pmi
from tellapart.integrations.trl.processor import processing_class
from tellapart.integrations.trl.retrieval import Bank, self_retrieval

__all__ = ["Bank", "bag_order", "cider", "pmi", "processing_class", "self_retrieval"]
