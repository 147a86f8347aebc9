"""Scorers: models that measure how well a text matches a picture. The papers call this model the retriever."""

from tellapart.scorers.base import Scorer
from tellapart.scorers.load import SCORERS, ScorerEntry, load_scorer

__all__ = ["SCORERS", "Scorer", "ScorerEntry", "load_scorer"]
