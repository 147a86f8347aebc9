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
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class Item:
    """One picture with what people wrote about it. ``truth`` is a `Scene` in `scenes`, else None."""

    id: str
    picture: Picture
    references: tuple[str, ...] = ()
    split: str = ""
    truth: Any = None


@dataclass(frozen=True, slots=True)
class Encoder:
    """How to turn pictures into features, and a fingerprint under which the result may be kept.

    ``fingerprint`` covers weights and preprocessing; ``pixels`` turns PIL pictures into one float
    tensor B×C×height×width; ``encode`` turns that into features, first axis B.
    """

    fingerprint: str
    pixels: Callable[[Sequence[Image.Image]], torch.Tensor]
    encode: Callable[[torch.Tensor], torch.Tensor]


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


@dataclass(slots=True)
class Batch:
    """What one training step sees: B pictures and, where the objective reads them, their references.

    ``rows_B`` are the pictures' numbers in the training set; ``visual`` is the captioner's view of
    them (features, first axis B) or, for a scorer in training, the pixels; ``tokens_RT`` and
    ``valid_RT`` hold R = B·captions references, picture by picture.
    """

    items: list[Item]
    rows_B: torch.Tensor
    visual: torch.Tensor
    tokens_RT: torch.Tensor | None = None
    valid_RT: torch.Tensor | None = None
