"""The rewards of `tellapart.integrations.trl` for verl and for ms-swift, by the signatures of their reward functions.

verl's reward managers hand over one caption at a time, as ``compute_score(data_source, solution_str, ground_truth,
extra_info)``. `CaptionsTogether` collects those of a step for rewards that compare pictures, and
`tellapart.integrations.verl_manager` is the reward manager that uses it. What TRL calls columns are the entries of
``extra_info``. ms-swift makes an object of a registered class and calls it with ``completions`` and the columns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tellapart.errors import UsageError
from tellapart.integrations.trl import Completion, RewardFunction

ABSTAINED = 0.0  # verl has no missing rewards


def compares_pictures(reward: RewardFunction) -> bool:
    """Returns whether a reward depends on the other pictures of the batch."""
    if getattr(reward, "score", None) == "cosine":
        return False
    return getattr(reward, "candidates", None) in ("batch", "bag") or reward.__name__ == "pmi"


class VerlScore:
    """A reward as verl's ``compute_score`` of one caption, for its reward managers ``naive``, ``dapo`` and ``limited``.

    ``extra_info`` of a row has what the reward reads: ``image`` (a path, or a mapping with ``bytes``) and ``id``.
    ``abstained``: the value where the reward abstains. Raises `UsageError` for a reward that compares the pictures of a
    batch, which needs `VerlBatchScore`.
    """

    def __init__(self, reward: RewardFunction, *, abstained: float = ABSTAINED) -> None:
        if compares_pictures(reward):
            raise UsageError(
                f"{reward.__name__} compares the pictures of a batch, and compute_score sees one caption; use "
                "VerlBatchScore with the reward manager BatchManager of tellapart.integrations.verl_manager, or "
                "candidates='bank'"
            )
        self.batch = VerlBatchScore(reward, abstained=abstained)
        self.__name__ = reward.__name__

    def __call__(self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
        return self.batch([data_source], [solution_str], [ground_truth], [extra_info])[0]


class VerlBatchScore:
    """A reward as ``compute_score`` of `tellapart.integrations.verl_manager`, which hands over all captions of a step.

    ``extra_infos`` have what the reward reads: ``image`` (a path, or a mapping with ``bytes``), and ``id`` or ``bag``.
    ``abstained``: the value where the reward abstains; a picture's captions abstain together, so that the advantage of
    GRPO is 0 for any value.
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
    """Collects captions that arrive one by one, and scores those of a step together.

    score: is called with ``data_sources``, ``solution_strs``, ``ground_truths`` and ``extra_infos``, and returns as
    many numbers. size: captions of a step. patience: seconds without a new caption after which those that are there
    are scored, as in a validation of another size.
    """

    def __init__(self, score: Callable[..., Sequence[float]], size: int, patience: float) -> None:
        self.score, self.size, self.patience = score, size, patience
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[float]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # a task that nothing refers to may be lost

    async def score_of(self, caption: Mapping[str, Any]) -> float:
        """Returns the score of a caption, once its step is complete.

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
    """Returns the class of a reward for ms-swift's ``orms``; its objects are called with completions and columns.

    ms-swift has a row's pictures in the column ``images``: make the reward with ``image_column="images"``. Where the
    reward abstains the value is None.
    """

    class SwiftReward:
        """A reward of tellapart as an outcome reward of ms-swift."""

        def __init__(self, args: Any = None, **kwargs: Any) -> None:
            self.args = args

        def __call__(self, completions: Sequence[Completion], **kwargs: Any) -> list[float | None]:
            return reward(completions, **kwargs)

    SwiftReward.__name__ = SwiftReward.__qualname__ = reward.__name__  # the name in ms-swift's logs
    return SwiftReward
