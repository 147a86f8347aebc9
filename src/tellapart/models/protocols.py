"""The interfaces of captioners and tokenizers that rewards and objectives rely on.

`tellapart.captioners.Captioner` implements `CaptionerLike`; any other class with the same methods can be used as well.
`tellapart.types` defines the shape suffixes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from tellapart.models.decoding import Decoding
from tellapart.types import Rollout
from tellapart.utils.rng import ItemSeeds

OutputLayer = tuple["torch.Tensor", "torch.Tensor | None"]  # weight_VH and bias_V


class Tokenizer(Protocol):
    """The subset of the transformers tokenizer interface that this package uses."""

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


class CaptionerLike(Protocol):
    """Generates text from pictures. ``visual`` has B rows; captions have R = B·S rows, grouped by picture."""

    name: str
    model: Any  # a torch.nn.Module from transformers or user code
    tokenizer: Any  # a `Tokenizer`; transformers' own classes define its attributes only at run time

    @property
    def device(self) -> torch.device: ...

    def parts(self) -> dict[str, torch.nn.Module]:
        """Returns the trainable parts by name."""

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Pads rows of token ids, and returns tokens_RT and valid_RT."""

    @property
    def end(self) -> int:
        """The id of the end token."""

    @property
    def stop_tokens(self) -> Sequence[int]:
        """Ids of the tokens that end a caption and are kept as its last token. The end token comes first."""

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Computes the vision encoder's output, B×… ."""

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes hidden_RTH with teacher forcing. ``hidden[:, t]`` times the output layer gives the logits for
        ``tokens[:, t]``.
        """

    def head(self) -> OutputLayer | None:
        """Returns the output layer, or None if logits are computed in another way, in which case `hidden` returns the
        logits.
        """

    def logits(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes logits_RTV with teacher forcing."""

    def generate(self, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
        """Generates captions without tracking gradients.

        ``seeds``: one seed per picture, which determines the picture's samples.
        """

    def tokenize(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Returns the token ids of captions, each with its end token."""

    def with_prompt(self, prompt: str) -> CaptionerLike:
        """Returns a captioner that uses another prompt and shares this captioner's weights.

        For "", returns this captioner.
        """
