"""Data types shared by all subpackages, and the legend for shape suffixes.

Array names end in their axes: ``logits_BTV``, ``reward_BS``, ``features_ND``.

    B  pictures in a batch        T  tokens in a caption       N  pictures in a data set
    S  samples per picture        V  vocabulary                D  features
    R  captions, B·S rows         H  hidden units              C  colour channels
    K  candidates in a set        P  prefix positions, patches or regions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
import numpy.typing as npt
from PIL import Image

from tellapart.utils.rng import ItemSeeds
from tellapart.utils.shares import share_of
from tellapart.utils.untrusted_text import clean_text

if TYPE_CHECKING:
    import torch


class Picture(Protocol):
    """The source of an item's pixels: a file, a scene, or a member of an archive."""

    @property
    def name(self) -> str:
        """Returns the name used in messages: the path, or the scene's id."""
        ...

    def key(self) -> str:
        """Returns a hash of the content, not of the name: identical pictures have the same key."""
        ...

    def image(self) -> Image.Image:
        """Decodes to RGB, eight bits per channel. Raises `tellapart.errors.PictureError`."""
        ...


class Rows(Protocol):
    """N rows that are read only when they are indexed: an array in memory or on disk, or features in files."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, places: npt.NDArray[np.integer[Any]], /) -> np.ndarray: ...
    @overload
    def __getitem__(self, places: slice, /) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Item:
    """One picture with its human references. ``truth``: the ground truth (a `Scene`, for `scenes`), or None.

    ``id`` and ``split`` are normalized with `clean_text`, so that different files agree on them.
    """

    id: str
    picture: Picture
    references: tuple[str, ...] = ()
    split: str = ""
    truth: Any = None

    def __post_init__(self) -> None:
        for name in ("id", "split"):
            if not (text := getattr(self, name)).isprintable():
                object.__setattr__(self, name, clean_text(text))


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns pictures into features, which can be cached under its fingerprint.

    fingerprint: a hash of the weights and the preprocessing.
    pixels: turns PIL pictures into one float tensor B×C×height×width.
    encode: turns that tensor into features, whose first axis is B.
    frames: the number of frames encoded per clip.
    join: joins the features of one clip's F frames, F×…, into one row. If ``frames`` exceeds 1, it is also called for
        still pictures, with F = 1. None: the row consists of the features of the single frame.
    precision: the precision of the model's weights. "bf16" and "fp16" rows take half the space if that is lossless.
    name: the name shown by ``tellapart cache``.
    tower: the encoder's frozen first part, or None. ``encode`` also accepts the tower's output, so that pictures are
        not encoded from scratch if their tower features are cached.
    """

    fingerprint: str
    pixels: Callable[[Sequence[Image.Image]], torch.Tensor]
    encode: Callable[[torch.Tensor], torch.Tensor]
    frames: int = 1
    join: Callable[[torch.Tensor], torch.Tensor] | None = None
    precision: str = "fp32"
    name: str = ""
    tower: Encoder | None = None


@dataclass(slots=True)
class Rollout:
    """Generated captions for B pictures, S samples each, as R = B·S rows, picture by picture.

    tokens_RT: only the new tokens, including the end token if it was generated, padded on the right.
    valid_RT: True for tokens (including the end token), False for padding.
    texts: the R decoded captions.
    samples: the number S of captions per picture.
    """

    tokens_RT: torch.Tensor
    valid_RT: torch.Tensor
    texts: list[str]
    samples: int = 1

    def rows(self) -> list[list[int]]:
        """Returns the token ids of each caption, without padding."""
        return [tokens[valid].tolist() for tokens, valid in zip(self.tokens_RT, self.valid_RT, strict=True)]

    def __getitem__(self, pictures: slice) -> Rollout:
        """Returns the captions for these pictures."""
        rows = slice(pictures.start * self.samples, pictures.stop * self.samples)
        return Rollout(self.tokens_RT[rows], self.valid_RT[rows], self.texts[rows], self.samples)


@dataclass(slots=True)
class Batch:
    """The input to one training step: B pictures and, if the objective uses them, their references.

    rows_B: the pictures' row numbers in the training set.
    visual: the captioner's input (features, first axis B) or, if a vision encoder is trained, pixels.
    tokens_RT, valid_RT: the references, with the same number for each of the B pictures, picture by picture.
    bag_B: the number of each picture's bag, if the recipe uses bags.
    distractors_BK: the row numbers of additional distractors for each picture, for which no captions are generated.
        Padded with −1 if a picture has fewer than K distractors.
    step: the batch's number, counting from 0. ``step`` and ``seed`` determine the random numbers for each item.
    """

    items: list[Item]
    rows_B: torch.Tensor
    visual: torch.Tensor
    tokens_RT: torch.Tensor | None = None
    valid_RT: torch.Tensor | None = None
    bag_B: torch.Tensor | None = None
    distractors_BK: torch.Tensor | None = None
    step: int = 0
    seed: int = 0

    @property
    def seeds(self) -> ItemSeeds | None:
        """Returns the source of this step's random numbers; None (torch's global generator) if there are no items."""
        return ItemSeeds(tuple(item.id for item in self.items), self.seed, self.step) if self.items else None

    def split(self, chunks: int) -> list[Batch]:
        """Splits the batch by picture into at most ``chunks`` parts of nearly equal size; 1 leaves the batch whole."""
        size = -(-len(self.rows_B) // chunks)
        return [self[start : start + size] for start in range(0, len(self.rows_B), size)] if chunks > 1 else [self]

    def __getitem__(self, pictures: slice) -> Batch:
        """Returns the part of the batch that contains these pictures and their references.

        Returns the batch itself if the slice covers all pictures.
        """
        if (pictures.start, pictures.stop) == (0, len(self.rows_B)):
            return self
        return self.part(pictures, self.visual[pictures])

    def part(self, pictures: slice, visual: Any) -> Batch:
        """Returns the part of the batch that contains these pictures, with ``visual`` as their input."""
        each = 0 if self.tokens_RT is None else len(self.tokens_RT) // len(self.rows_B)
        rows = slice(pictures.start * each, pictures.stop * each)
        return type(self)(
            self.items[pictures],
            self.rows_B[pictures],
            visual,
            None if self.tokens_RT is None else self.tokens_RT[rows],
            None if self.valid_RT is None else self.valid_RT[rows],
            None if self.bag_B is None else self.bag_B[pictures],
            None if self.distractors_BK is None else self.distractors_BK[pictures],
            self.step,
            self.seed,
        )


@dataclass(slots=True)
class Loss:
    """A scalar loss to minimize, and values for the log."""

    value: torch.Tensor
    logs: dict[str, float] = field(default_factory=dict)


def run_backward(loss: Loss) -> None:
    """Computes the gradients of the loss."""
    loss.value.backward()


@dataclass(frozen=True)
class StepContext:
    """The settings for a training step that are common to all objectives.

    backward: takes the loss of one micro-batch and computes its gradients.
    micro_batches: the maximum number of parts into which the batch is split for forward and backward passes.
    encode: the captioner's vision encoder if it is trained; ``batch.visual`` then contains pixels.
    autocast: returns the context manager for forward passes.
    rank, world_size: as in torch.distributed, for the current process.
    """

    backward: Callable[[Loss], None] = run_backward
    micro_batches: int = 1
    encode: Callable[[torch.Tensor], torch.Tensor] | None = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    rank: int = 0
    world_size: int = 1

    def visual(self, part: Batch) -> torch.Tensor:
        """Returns the input to the captioner's language model: the part's features. If ``encode`` is set, encodes them
        from pixels.
        """
        return part.visual if self.encode is None else self.encode(part.visual)

    def share(self, total: int) -> slice:
        """Returns this rank's share of ``total`` rows (see `share_of`)."""
        return share_of(total, self.rank, self.world_size)
