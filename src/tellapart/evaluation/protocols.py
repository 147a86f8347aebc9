"""What an evaluation needs of the models that it asks: a scorer, a language model, a text encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch

    from tellapart.models.protocols import Tokenizer
    from tellapart.types import Encoder


class EvalScorer(Protocol):
    """A scorer with stored image features. Its text features are L2-normalised, N×D."""

    name: str

    @property
    def frames(self) -> int:
        """Frames of a video file that it sees; other pictures need none."""
        ...

    @property
    def encoder(self) -> Encoder: ...

    @property
    def window(self) -> int:
        """The longest text in tokens, start and end included."""
        ...

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, start and end included, before it is cut."""
        ...

    def text_features(self, texts: Sequence[str]) -> torch.Tensor: ...


class TokenScorer(EvalScorer, Protocol):
    """A scorer that also has features of single tokens, as EMScore needs them."""

    tokenizer: Tokenizer

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, start and end included, cut at the window."""
        ...

    def token_features(self, texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        """Of each text the ids of its T tokens and their normalised features, T×D."""
        ...


class TextModel(Protocol):
    """A model of texts: what a signature says of it, and how many texts it had to cut."""

    name: str
    window: int
    cut_texts: int

    @property
    def signature(self) -> str: ...
