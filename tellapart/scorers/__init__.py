"""Scorers: how well a text matches a picture (the papers' retriever)."""

from tellapart.scorers.base import Scorer, load_scorer

__all__ = ["Scorer", "load_scorer"]
