"""Collects captions that arrive one by one, and scores those of a step together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class CaptionsTogether:
    """Collects captions that arrive one by one, and scores each step's captions together.

    score: a function that is called with ``data_sources``, ``solution_strs``, ``ground_truths`` and ``extra_infos`` and
        returns one number per caption.
    size: the number of captions in a step.
    patience: an incomplete step, such as a small validation batch, is scored after this many seconds without a new
        caption.
    """

    def __init__(self, score: Callable[..., Sequence[float]], size: int, patience: float) -> None:
        self.score, self.size, self.patience = score, size, patience
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[float]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio may garbage-collect unreferenced tasks

    async def score_of(self, caption: Mapping[str, Any]) -> float:
        """Returns a caption's score as soon as its step is complete.

        caption: a mapping with ``data_source``, ``solution_str``, ``ground_truth`` and ``extra_info``.
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
