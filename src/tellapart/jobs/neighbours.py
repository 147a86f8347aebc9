"""Distributes the neighbour search of `tellapart.bags.large_search` over a cluster's workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from tellapart.bags.large_search import LargeSearch, Spread
from tellapart.errors import TellapartError
from tellapart.jobs.cluster import connected
from tellapart.jobs.worker_share import Workers

RETRIES = 5  # how often a task is retried if its worker or node dies


@contextlib.contextmanager
def spread_by_ray(workers: Workers) -> Iterator[Spread]:
    """Distributes a stage's tasks over all workers. The workers need access to the folders with the features and the
    result.
    """
    with connected(workers) as (ray, share):
        perform = ray.remote(num_cpus=share.cpus, max_retries=RETRIES)(_perform)

        def spread(search: LargeSearch, name: str, numbers: Sequence[int]) -> Iterator[None]:
            pending: list[Any] = []
            shared = ray.put(search)  # sent only once per stage, including the data that the search has read
            for number in numbers:
                if len(pending) >= share.count:
                    pending = _one_done(ray, pending)
                    yield
                pending.append(perform.remote(shared, name, number))
            while pending:
                pending = _one_done(ray, pending)
                yield

        yield spread


def _perform(search: LargeSearch, name: str, number: int) -> str:
    """Performs a task in a worker. If an error occurs that the user can fix, returns it as one line of text."""
    try:
        search.perform(name, number)
    except TellapartError as error:
        return str(error) or type(error).__name__
    return ""


def _one_done(ray: Any, pending: list[Any]) -> list[Any]:
    """Waits until a task is done, and returns the remaining tasks. Raises `TellapartError` if the task failed."""
    split: tuple[list[Any], list[Any]] = ray.wait(pending, num_returns=1)
    (done,), rest = split
    try:
        wrong = ray.get(done)
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise TellapartError(
            f"a task failed ({lines[-1].strip() if lines else type(error).__name__}); completed "
            "work is kept; run the same command again to resume"
        ) from None
    if wrong:
        raise TellapartError(wrong)
    return rest
