"""The parts of a run that the factories of objectives and rewards may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tellapart.errors import UsageError
from tellapart.models.protocols import CaptionerLike
from tellapart.scorers.base import Scorer
from tellapart.types import Item

Nearest = Callable[[np.ndarray], np.ndarray]  # maps rows_B of training pictures to rows_BK, their look-alikes
Look = Callable[[np.ndarray], torch.Tensor]  # maps rows_B of training pictures to their `Batch.visual`


@dataclass(frozen=True)
class RunParts:
    """The parts of a run that the factories of objectives and rewards may use.

    captioner: the captioner being trained.
    scorer: the frozen scorer configured by the recipe's [scorer]; None if the recipe has none.
    train_items: the training pictures, indexed by ``batch.rows_B``.
    vision_learns: True if the captioner's vision encoder is trained; ``batch.visual`` then contains pixels.
    load_scorer(name): loads another frozen scorer.
    start(prompt=""): returns the run's initial captioner, frozen and without dropout. All callers share its weights.
    train_features(scorer): returns features_ND for the training pictures.
    trained_on(name): returns seen_N, which is True for the training pictures on which the named scorer was trained,
        according to the scorer's run.
    train_visual(): returns a function that maps rows_B of training pictures to the captioner's input, in the format of
        ``batch.visual``.
    nearest_train(scorer, count): returns a function that maps rows_B of training pictures to rows_BK, their ``count``
        most similar other training pictures.
    """

    captioner: CaptionerLike
    scorer: Scorer | None
    train_items: Sequence[Item]
    vision_learns: bool
    load_scorer: Callable[[str], Scorer]
    start: Callable[..., CaptionerLike]
    train_features: Callable[[Scorer], np.ndarray]
    trained_on: Callable[[str], np.ndarray]
    train_visual: Callable[[], Look]
    nearest_train: Callable[[Scorer, int], Nearest]


def frozen_scorers(names: Sequence[str], parts: RunParts) -> list[Scorer]:
    """Returns the named scorers or, if ``names`` is empty, the recipe's [scorer], which the schema then requires."""
    if names:
        return [parts.load_scorer(name) for name in names]
    assert parts.scorer is not None, "[scorer] is required; the recipe schema checks this"
    return [parts.scorer]


def unseen_by(names: Sequence[str], parts: RunParts) -> np.ndarray:
    """Returns unseen_KN: True if scorer k was not trained on training picture n.

    Raises `UsageError` if a picture was in the training data of all scorers.
    """
    unseen_KN = ~np.stack([parts.trained_on(name) for name in names])
    lost_N = np.flatnonzero(~unseen_KN.any(0))
    if len(lost_N):
        raise UsageError(
            f"{len(lost_N)} of {unseen_KN.shape[1]} training pictures, such as "
            f"{parts.train_items[lost_N[0]].id}, were in the training data of every scorer "
            f"({', '.join(names)}). Each picture needs a scorer that was not trained on it; train the "
            "scorers on different parts of the data (data.train = '…&part=1,2/3')"
        )
    return unseen_KN
