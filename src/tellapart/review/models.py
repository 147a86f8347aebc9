"""Loads the models for a review: a scorer that finds the pictures a caption fits, and a captioner."""

from __future__ import annotations

from tellapart.captioners.load import load_captioner
from tellapart.data import Dataset
from tellapart.models.devices import resolve_device
from tellapart.review.fit_finder import FitFinder
from tellapart.review.recaptioner import Recaptioner
from tellapart.scorers.load import load_scorer


def open_models(scorer: str, model: str | None, device: str, dataset: Dataset) -> tuple[FitFinder, Recaptioner | None]:
    """Loads the scorer and, if ``model`` is given, the captioner. Raises `UsageError` if there is no such model."""
    place = resolve_device(device)
    finder = FitFinder(load_scorer(scorer, place), dataset)
    return finder, None if model is None else Recaptioner(load_captioner(model, place), finder, dataset)
