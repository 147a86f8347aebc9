"""Describes what the rest of the package needs of a captioner and of a scorer, as types.

`tellapart.captioners.Captioner` and `tellapart.scorers.Scorer` fit these protocols, and so does any class of the user's
that has the same methods. Shape suffixes are those of `tellapart.types`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from PIL import Image

from tellapart.models.decoding import Decoding
from tellapart.types import Encoder, Rollout
from tellapart.utils.rng import ItemSeeds

OutputLayer = tuple["torch.Tensor", "torch.Tensor | None"]  # weight_VH and bias_V


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    padding_side: str
    pad_token_id: int | None
    eos_token_id: int | None
    unk_token_id: int | None

    @property
    def all_special_ids(self) -> list[int]: ...
    def __len__(self) -> int: ...
    def __call__(self, text: list[str], **options: Any) -> Mapping[str, Any]: ...
    def get_vocab(self) -> dict[str, int]: ...
    def batch_decode(self, rows: Sequence[Sequence[int]], **options: Any) -> list[str]: ...


class Learner(Protocol):
    """Describes what training needs of any model, captioner or scorer."""

    name: str
    model: Any  # a torch.nn.Module of transformers, or of the user's own
    tokenizer: Any  # a `Tokenizer`; transformers' own classes declare its attributes at run time only

    @property
    def device(self) -> torch.device: ...

    def parts(self) -> dict[str, torch.nn.Module]:
        """Returns what can be trained, by name."""
        ...

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """tokens_RT and valid_RT of rows of token ids."""
        ...


@runtime_checkable
class CaptionerLike(Learner, Protocol):
    """Pictures to text. ``visual`` has B rows, captions have R = B·S, the S captions of a picture side by side."""

    @property
    def end(self) -> int:
        """The id of the end token."""
        ...

    @property
    def stop_tokens(self) -> Sequence[int]:
        """Ids of all tokens that end a caption and are part of it, the end token first."""
        ...

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """The vision encoder's output, B×… ."""
        ...

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """hidden_RTH, teacher-forced: position t, times the output layer, gives the logits of ``tokens[:, t]``."""
        ...

    def head(self) -> OutputLayer | None:
        """The output layer; None where logits are computed in another way, and `hidden` returns them."""
        ...

    def logits(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """logits_RTV, teacher-forced."""
        ...

    def generate(self, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
        """Captions, without gradient. ``seeds``, one per picture, decide what is sampled."""
        ...

    def tokenize(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Token ids of captions, each with its end token."""
        ...

    def with_prompt(self, prompt: str) -> CaptionerLike:
        """The captioner behind another prompt, with the same weights; itself for ""."""
        ...


@runtime_checkable
class ScorerLike(Protocol):
    """Describes how well a text matches a picture: the cosine of two L2-normalised features, times ``scale``."""

    @property
    def device(self) -> torch.device: ...

    @property
    def scale(self) -> float:
        """The learned factor on the cosine, about 100 for CLIP."""
        ...

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """PIL images as the model reads them."""
        ...

    def image_features(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """L2-normalised features B×D of what `pixels` returns."""
        ...

    def text_features(self, texts: Sequence[str]) -> torch.Tensor:
        """L2-normalised features N×D of whole captions, without gradient."""
        ...


class FrozenScorer(ScorerLike, Protocol):
    """A scorer whose image features can be stored: its encoder has a fingerprint."""

    name: str

    @property
    def encoder(self) -> Encoder: ...


class TrainableScorer(Learner, ScorerLike, Protocol):
    """A dual encoder in training (contrastive learning)."""

    def row_features(self, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """L2-normalised features R×D of rows of tokens, with gradient where it is on."""
        ...
