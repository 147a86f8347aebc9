"""``kind = "custom"``: a user-defined reward, given as ``module:factory`` or as the name of an entry point."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tellapart.errors import UsageError, nearest
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.utils.allowed_code import PATTERN, code_path, installed
from tellapart.utils.code_loading import call_factory


@reward("custom reward", help="User-defined reward, given as module:factory.")
class Custom(RewardOptions):
    """User-defined reward. ``reward = "my.module:factory"`` names a factory, which is called with ``options`` and
    returns the reward.

    ``reward`` may also name an installed entry point in the group ``tellapart.rewards``.
    """

    kind: Literal["custom"]
    reward: str = Field(pattern=rf"{PATTERN}|^\w[\w.-]*$")
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def compares_pictures(self) -> bool:
        return True  # this is unknown for user code, so assume that the reward compares pictures

    def check(self) -> None:
        self.build(None)

    def build(self, parts: RunParts | None) -> Reward:
        """Calls the factory and returns its reward.

        Raises a one-line `UsageError` if user code is not allowed to run, if the module or function does not exist, or
        if the factory fails or does not return a callable.
        """
        key = f"objective.rewards.reward = '{self.reward}'"
        if (path := code_path(self.reward, "reward")) is None:
            hint = nearest(self.reward, known) if (known := installed("reward")) else ""
            raise UsageError(
                f"{key}: no installed package provides a reward '{self.reward}'{hint}; expected "
                "module:factory or the name of an entry point"
            )
        built: Reward = call_factory(path, "reward", key, self.options)
        if not callable(built):
            raise UsageError(
                f"{key}: the factory returned a {type(built).__name__}; expected a callable that takes (rollout, batch)"
            )
        return built
