"""Adapts the rewards of `tellapart.integrations.trl` to verl's ``compute_score``.

verl's reward managers pass one caption at a time, as ``compute_score(data_source, solution_str, ground_truth,
extra_info)``. For rewards that compare pictures, use the reward manager `tellapart.integrations.verl_manager`, which
passes all captions of a step. The entries in ``extra_info`` correspond to TRL's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tellapart.errors import UsageError
from tellapart.integrations.trl.rows import RewardFunction

ABSTAINED = 0.0  # verl does not support missing rewards


def compares_pictures(reward: RewardFunction) -> bool:
    """Returns whether a reward depends on the other pictures in the batch."""
    if getattr(reward, "score", None) == "cosine":
        return False
    return getattr(reward, "candidates", None) in ("batch", "bag") or reward.__name__ == "pmi"


class VerlScore:
    """Wraps a reward as verl's ``compute_score`` for one caption (for the reward managers ``naive``, ``dapo`` and
    ``limited``).

    ``extra_info`` must contain the columns that the reward reads: ``image`` (a path, or a mapping with ``bytes``) and
    ``id``. ``abstained``: the value to return if the reward abstains. Raises `UsageError` if the reward compares the
    pictures in a batch; use `VerlBatchScore` for such a reward.
    """

    def __init__(self, reward: RewardFunction, *, abstained: float = ABSTAINED) -> None:
        if compares_pictures(reward):
            raise UsageError(
                f"{reward.__name__} compares the pictures in a batch, but compute_score gets a single caption; use "
                "VerlBatchScore with the reward manager BatchManager in tellapart.integrations.verl_manager, or "
                "candidates='bank'"
            )
        self.batch = VerlBatchScore(reward, abstained=abstained)
        self.__name__ = reward.__name__

    def __call__(self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
        return self.batch([data_source], [solution_str], [ground_truth], [extra_info])[0]


class VerlBatchScore:
    """Wraps a reward as ``compute_score`` for `tellapart.integrations.verl_manager`, which passes whole steps.

    ``extra_infos`` must contain the columns that the reward reads: ``image`` (a path, or a mapping with ``bytes``), and
    ``id`` or ``bag``. ``abstained``: the value to return if the reward abstains. If a reward abstains for one caption
    of a picture, it abstains for all of them, so GRPO's advantage is 0 whatever this value is.
    """

    def __init__(self, reward: RewardFunction, *, abstained: float = ABSTAINED) -> None:
        self.reward, self.abstained = reward, abstained
        self.__name__ = reward.__name__

    def __call__(
        self,
        data_sources: Sequence[Any],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any] | None = None,
    ) -> list[float]:
        infos = [info or {} for info in ([None] * len(solution_strs) if extra_infos is None else extra_infos)]
        names = set(infos[0]).intersection(*infos[1:]) if infos else set()
        columns = {str(name): [info[name] for info in infos] for name in names}
        rewards = self.reward(list(solution_strs), **columns)
        return [self.abstained if value is None else value for value in rewards]
