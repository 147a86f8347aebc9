"""Builds batches of whole bags for TRL's trainers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tellapart.bags.file import Bag, read_bags
from tellapart.bags.truematch import read_truematch
from tellapart.data.records import id_text
from tellapart.errors import UsageError

if TYPE_CHECKING:
    from datasets import Dataset


class TrainerOptions(Protocol):
    """The settings in `GRPOConfig` and `RLOOConfig` that determine which pictures share a batch."""

    per_device_train_batch_size: int
    steps_per_generation: int | None
    num_generations: int
    shuffle_dataset: bool


def bag_order(
    dataset: Dataset,
    bags: str | Path | Iterable[Bag | Sequence[str]],
    args: TrainerOptions,
    *,
    size: int | None = None,
    seed: int = 0,
    id_column: str = "id",
) -> Dataset:
    """Orders the rows of ``dataset`` bag by bag, with bags in random order, and adds a ``bag`` column with each bag's
    number.

    bags: lists of ids from ``id_column``, a file written by ``tellapart bags mine``, TrueMatch's ``3.json``, or the
        result of `tellapart.bags.mine_bags`. A picture may be in several bags.
    args: the trainer's `GRPOConfig` or `RLOOConfig`. The trainer must not shuffle, and each rank must get whole bags,
        that is, ``(per_device_train_batch_size * steps_per_generation) % (bag_size * num_generations) == 0``.
    size: which bag size to use if the bags differ in size.

    Raises `UsageError` if a condition is not met, or if a bag contains a picture that is not in the data set.
    """
    named_bags = _bags(bags)
    there = ", ".join(map(str, sorted({len(bag) for bag in named_bags}))) or "none"
    named_bags = [bag for bag in named_bags if size in (None, len(bag))]
    sizes = sorted({len(bag) for bag in named_bags})
    if not sizes:
        raise UsageError(f"no bags of size {size}; available sizes: {there}")
    if len(sizes) != 1:
        raise UsageError(f"the file contains bags of sizes {there}; select one of them: size={sizes[0]}")
    check_whole_bags(args, sizes[0])
    if id_column not in dataset.column_names:
        raise UsageError(
            f"the data set has no column '{id_column}'; available columns: {', '.join(dataset.column_names)}"
        )
    row_of_id = {id_text(id_): row for row, id_ in enumerate(dataset[id_column])}
    if missing := [id_ for bag in named_bags for id_ in bag if id_ not in row_of_id]:
        raise UsageError(
            f"a bag contains picture '{missing[0]}', which is not in the data set; expected bags of pictures in the "
            "data set"
        )
    order = np.random.default_rng(seed).permutation(len(named_bags))
    rows = [row_of_id[id_] for number in order for id_ in named_bags[number]]
    numbers = [int(number) for number in order for _ in range(sizes[0])]
    return dataset.select(rows).add_column("bag", numbers)


def check_whole_bags(args: TrainerOptions, bag_size: int) -> None:
    """Raises `UsageError` if a trainer with these settings would split bags of this size."""
    if args.shuffle_dataset:
        raise UsageError("the trainer shuffles the data set, which would split the bags; set shuffle_dataset=False")
    rows = args.per_device_train_batch_size * (args.steps_per_generation or 1)
    if rows % (bag_size * args.num_generations):
        raise UsageError(
            f"each rank gets {rows} captions per generation (per_device_train_batch_size "
            f"{args.per_device_train_batch_size} × steps_per_generation {args.steps_per_generation}), which is "
            f"not a multiple of the bag size {bag_size} × num_generations {args.num_generations} = "
            f"{bag_size * args.num_generations}, so bags would be split; change one of these settings"
        )


def _bags(bags: str | Path | Iterable[Bag | Sequence[str]]) -> list[list[str]]:
    if isinstance(bags, (str, Path)):
        path = Path(bags)
        bags = read_truematch(path) if path.suffix.lower() == ".json" else read_bags(path).bags
    return [[id_text(id_) for id_ in (bag.ids if isinstance(bag, Bag) else bag)] for bag in bags]
