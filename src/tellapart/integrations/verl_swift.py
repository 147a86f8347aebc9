"""Adapts the rewards of `tellapart.integrations.trl` to the reward functions of verl and ms-swift.

verl's reward managers pass one caption at a time, as ``compute_score(data_source, solution_str, ground_truth,
extra_info)``. For rewards that compare pictures, `CaptionsTogether` collects the captions of a step;
`tellapart.integrations.verl_manager` is the reward manager that uses it. The entries in ``extra_info`` correspond to
TRL's columns. ms-swift instantiates a registered class and calls it with ``completions`` and the columns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tellapart.errors import UsageError
from tellapart.integrations.trl import Completion, RewardFunction

ABSTAINED = 0.0  # verl does not support missing rewards


def compares_pictures(reward: RewardFunction) -> bool:
    """Returns whether a reward depends on the other pictures in the batch."""
    if getattr(reward, "score", None) == "cosine":
        return False
    return getattr(reward, "candidates", None) in ("batch", "bag") or reward.__name__ == "pmi"


class VerlScore:
    """Wraps a reward as verl's ``compute_score`` for one caption (reward managers ``naive``, ``dapo``, ``limited``).

    ``extra_info`` must contain what the reward reads: ``image`` (a path, or a mapping with ``bytes``) and ``id``.
    ``abstained``: the value to return if the reward abstains. Raises `UsageError` if the reward compares the pictures
    in a batch, for which there is `VerlBatchScore`.
    """

    def __init__(self, reward: RewardFunction, *, abstained: float = ABSTAINED) -> None:
        if compares_pictures(reward):
            raise UsageError(
                f"{reward.__name__} compares the pictures in a batch, but compute_score gets a single caption; use "
                "VerlBatchScore with the reward manager BatchManager of tellapart.integrations.verl_manager, or "
                "candidates='bank'"
            )
        self.batch = VerlBatchScore(reward, abstained=abstained)
        self.__name__ = reward.__name__

    def __call__(self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
        return self.batch([data_source], [solution_str], [ground_truth], [extra_info])[0]


class VerlBatchScore:
    """Wraps a reward as ``compute_score`` for `tellapart.integrations.verl_manager`, which passes whole steps.

    ``extra_infos`` must contain what the reward reads: ``image`` (a path, or a mapping with ``bytes``), and ``id`` or
    ``bag``. ``abstained``: the value to return if the reward abstains. A reward abstains for all captions of a picture
    or for none, so GRPO's advantage is 0 whatever the value.
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


class CaptionsTogether:
    """Collects captions that arrive one by one, and scores each step's captions together.

    score: called with ``data_sources``, ``solution_strs``, ``ground_truths`` and ``extra_infos``; returns one number
        per caption.
    size: number of captions in a step.
    patience: seconds without a new caption after which an incomplete step, such as a small validation batch, is scored.
    """

    def __init__(self, score: Callable[..., Sequence[float]], size: int, patience: float) -> None:
        self.score, self.size, self.patience = score, size, patience
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[float]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio may garbage-collect unreferenced tasks

    async def score_of(self, caption: Mapping[str, Any]) -> float:
        """Returns the score of a caption, as soon as its step is complete.

        caption: ``data_source``, ``solution_str``, ``ground_truth`` and ``extra_info``.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[float] = loop.create_future()
        self._waiting.append((caption, future))
        if self._timer is not None:
            self._timer.cancel()
        if len(self._waiting) == self.size:
            self._score_all()
        else:
            self._timer = loop.call_later(self.patience, self._score_all)
        return await future

    def _score_all(self) -> None:
        waiting, self._waiting, self._timer = self._waiting, [], None
        task = asyncio.get_running_loop().create_task(self._answer(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, waiting: list[tuple[Mapping[str, Any], asyncio.Future[float]]]) -> None:
        names = ("data_source", "solution_str", "ground_truth", "extra_info")
        columns = {f"{name}s": [caption.get(name) for caption, _ in waiting] for name in names}
        try:
            scores = await asyncio.to_thread(self.score, **columns)
            for (_, future), score in zip(waiting, scores, strict=True):
                if not future.done():
                    future.set_result(float(score))
        except Exception as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)


def swift_reward(reward: RewardFunction) -> type:
    """Returns a reward class for ms-swift's ``orms``; its instances are called with completions and columns.

    ms-swift stores a row's pictures in the ``images`` column, so create the reward with ``image_column="images"``.
    Scores are None where the reward abstains.
    """

    class SwiftReward:
        """A tellapart reward as an outcome reward for ms-swift."""

        def __init__(self, args: Any = None, **kwargs: Any) -> None:
            self.args = args

        def __call__(self, completions: Sequence[Completion], **kwargs: Any) -> list[float | None]:
            return reward(completions, **kwargs)

    SwiftReward.__name__ = SwiftReward.__qualname__ = reward.__name__  # the name in ms-swift's logs
    return SwiftReward
