"""The nouns that travel between the parts, and the legend of the shape suffixes.

A name that holds an array ends in its axes: ``logits_BTV``, ``reward_BS``, ``features_ND``.

    B  pictures in a batch        T  tokens of a caption       N  pictures of a data set
    S  samples per picture        V  vocabulary                D  features
    K  candidates of a set        H  hidden units              C  colour channels
    P  prefix positions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, overload

from tellapart.utils.rng import ItemSeeds
from tellapart.utils.text import clean_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
    from PIL import Image


class Picture(Protocol):
    """Where an item's pixels come from: a file, a scene, a member of an archive."""

    @property
    def name(self) -> str:
        """What to call it in a message: the path, or the scene's id."""
        ...

    def key(self) -> str:
        """A hash of the content (not of the name): equal pictures have equal keys."""
        ...

    def image(self) -> Image.Image:
        """Decode to RGB, eight bits a channel. Raises `tellapart.errors.PictureError`."""
        ...


class Rows(Protocol):
    """N rows that are read where they are indexed: an array, in memory or on disk, or features in files."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, places: npt.NDArray[np.integer[Any]], /) -> np.ndarray: ...
    @overload
    def __getitem__(self, places: slice, /) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Item:
    """One picture with what people wrote about it. ``truth`` is a `Scene` in `scenes`, else None.

    ``id`` and ``split`` are kept as `clean_text`: files that name the same item then agree.
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
    """How to turn pictures into features, and a fingerprint under which the result may be kept.

    ``fingerprint`` covers weights and preprocessing; ``pixels`` turns PIL pictures into one float
    tensor B×C×height×width; ``encode`` turns that into features, first axis B. ``frames``: how many frames of a clip
    are encoded so; ``join`` makes one row of their features F×…, and, where ``frames`` is more than 1, of those of a
    picture that stands still (F is 1 then). None: a row is the features of the one frame. ``precision``: of the model's
    weights; rows of "bf16" and "fp16" are kept in half the bytes where no bit is lost by it. ``name``: what `tellapart
    cache` calls it.
    """

    fingerprint: str
    pixels: Callable[[Sequence[Image.Image]], torch.Tensor]
    encode: Callable[[torch.Tensor], torch.Tensor]
    frames: int = 1
    join: Callable[[torch.Tensor], torch.Tensor] | None = None
    precision: str = "fp32"
    name: str = ""


@dataclass(slots=True)
class Rollout:
    """Captions as a captioner wrote them: B pictures, S samples each, as rows of B·S.

    ``tokens_RT`` are the new tokens only, the end token included where it was written, padding
    after it; ``valid_RT`` is True on tokens (end token included), False on padding;
    ``texts`` are the decoded captions, R of them, picture by picture.
    """

    tokens_RT: torch.Tensor
    valid_RT: torch.Tensor
    texts: list[str]
    samples: int = 1

    def __getitem__(self, pictures: slice) -> Rollout:
        """The captions of these pictures."""
        rows = slice(pictures.start * self.samples, pictures.stop * self.samples)
        return Rollout(self.tokens_RT[rows], self.valid_RT[rows], self.texts[rows], self.samples)


@dataclass(slots=True)
class Batch:
    """What one training step sees: B pictures and, where the objective reads them, their references.

    ``rows_B`` are the pictures' numbers in the training set; ``visual`` is the captioner's view of them (features,
    first axis B) or, for a scorer in training, the pixels; ``tokens_RT`` and ``valid_RT`` hold R = B·captions
    references, picture by picture. ``bag_B`` numbers the bags of pictures that came together, where the recipe has
    some; ``distractors_BK`` are numbers of further pictures that each is to be told from, of which no captions are
    written, −1 where there are fewer than K. ``step`` counts batches from 0, and with ``seed`` decides what is drawn
    for an item.
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
        """Where this step's random numbers for its items come from; None (torch's own generator) without items."""
        return ItemSeeds(tuple(item.id for item in self.items), self.seed, self.step) if self.items else None

    def split(self, chunks: int) -> list[Batch]:
        """At most ``chunks`` parts of nearly equal size, picture by picture; 1 is the batch itself."""
        size = -(-len(self.rows_B) // chunks)
        return [self[start : start + size] for start in range(0, len(self.rows_B), size)] if chunks > 1 else [self]

    def __getitem__(self, pictures: slice) -> Batch:
        """The part of these pictures, with their references; of all of them, the batch itself."""
        if (pictures.start, pictures.stop) == (0, len(self.rows_B)):
            return self
        return self.part(pictures, self.visual[pictures])

    def part(self, pictures: slice, visual: Any) -> Batch:
        """The part of these pictures, whose view is ``visual``."""
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
