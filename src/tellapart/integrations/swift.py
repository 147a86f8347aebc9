"""Adapts the rewards of `tellapart.integrations.trl` to ms-swift, which calls instances of a registered class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tellapart.integrations.trl.rows import Completion, RewardFunction


def swift_reward(reward: RewardFunction) -> type:
    """Returns a reward class for ms-swift's ``orms``. Its instances are called with completions and columns.

    ms-swift stores a row's pictures in the ``images`` column, so create the reward with ``image_column="images"``.
    A score is None if the reward abstains.
    """

    class SwiftReward:
        """Wraps a tellapart reward as an outcome reward for ms-swift."""

        def __init__(self, args: Any = None, **kwargs: Any) -> None:
            self.args = args

        def __call__(self, completions: Sequence[Completion], **kwargs: Any) -> list[float | None]:
            return reward(completions, **kwargs)

    SwiftReward.__name__ = SwiftReward.__qualname__ = reward.__name__  # the name in ms-swift's logs
    return SwiftReward
