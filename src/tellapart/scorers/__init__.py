"""Scorers: measure how well a text matches a picture (the papers' retriever)."""

from tellapart.scorers.base import Scorer
from tellapart.scorers.load import SCORERS, ScorerEntry, load_scorer

__all__ = ["SCORERS", "Scorer", "ScorerEntry", "load_scorer"]
