"""Answers requests from several threads in batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tellapart.boost.types import Answer, Request
from tellapart.errors import PictureError
from tellapart.models.out_of_memory import BatchSize

MAX_BATCH = 64


@dataclass(eq=False)
class _Queued:
    request: Request
    prepared: Any
    answer: Future[Answer] = field(default_factory=Future)


class Batcher:
    """Answers requests from several threads. Similar requests that are waiting at the same time share a batch.

    work: ``work(requests, prepared)`` returns an answer or an error for each request. Only one thread at a time calls
        it. ``prepared`` contains what each thread prepared for its request, such as the decoded picture.
    like: requests share a batch if they have the same ``like(request)``.
    """

    def __init__(
        self,
        work: Callable[[list[Request], list[Any]], Sequence[Answer | PictureError]],
        like: Callable[[Request], object],
        what: str = "answering",
    ) -> None:
        self._work, self._like, self._batch = work, like, BatchSize(MAX_BATCH, what)
        self._queue: list[_Queued] = []
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def answer(self, request: Request, prepared: Any = None) -> Answer:
        """Returns the answer to a request. One thread at a time answers all threads' requests. Raises the error if
        ``work`` returns one for this request.
        """
        mine = _Queued(request, prepared)
        with self._lock:
            self._queue.append(mine)
        with self._turn:
            while not mine.answer.done():
                self._answer_some()
        return mine.answer.result()

    def _answer_some(self) -> None:
        with self._lock:
            like = self._like(self._queue[0].request)
            chosen = [one for one in self._queue if self._like(one.request) == like][: self._batch.size]
            self._queue = [one for one in self._queue if one not in chosen]

        def work(some: slice) -> Sequence[Answer | PictureError]:
            return self._work([one.request for one in chosen[some]], [one.prepared for one in chosen[some]])

        answers: Sequence[Answer | Exception]
        try:
            answers = [answer for part in self._batch.batches(len(chosen), work) for answer in part]
        except Exception as error:
            answers = [error] * len(chosen)
        for one, answer in zip(chosen, answers, strict=True):
            if isinstance(answer, Answer):
                one.answer.set_result(answer)
            else:
                one.answer.set_exception(answer)
