"""Uses any dual encoder in transformers (CLIP, SigLIP, SigLIP 2, vision-text dual encoders) as a scorer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from tellapart.errors import TellapartError
from tellapart.models import collectives, ranks
from tellapart.models.digests import settings_of, weights_fingerprint
from tellapart.models.onednn import speed_up
from tellapart.models.quiet_transformers import silence_transformers
from tellapart.models.tokens import pad_rows
from tellapart.models.training_mode import in_mode
from tellapart.models.weight_permissions import readable_weights
from tellapart.types import Encoder
from tellapart.utils.blocks import blocks_of
from tellapart.utils.checksums import write_sums


class Scorer:
    """Measures how well a text matches a picture: the cosine of L2-normalized features, times ``scale``.

    Like CLIP, ``model`` must provide ``get_image_features``, ``get_text_features`` and ``logit_scale``. A clip's
    feature is the normalized mean over ``frames`` of its frames (mean pooling in CLIP4Clip, Luo et al. 2021).
    """

    frames = 8

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        self.model, self.tokenizer, self.processor, self.name = model, tokenizer, processor, name
        speed_up(model)
        self.window = text_window(model, tokenizer)
        self.cut_texts = 0  # number of texts that were truncated to the context window
        self.shared = False  # whether all ranks encode the same texts, so that each rank can encode a share of them
        self._fingerprint: str | None = None

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.logit_scale.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.model.logit_scale.dtype
        return dtype

    @property
    def scale(self) -> float:
        """The learned scale by which the cosine is multiplied, about 100 for CLIP."""
        return float(self.model.logit_scale.detach().exp())

    @property
    def fingerprint(self) -> str:
        """A hash of all weights and of the preprocessing. It identifies the scorer in signatures."""
        if self._fingerprint is None:
            self._fingerprint = weights_fingerprint(self.model, self.processor)
        return self._fingerprint

    @property
    def encoder(self) -> Encoder:
        encode = self._frozen_image_features
        return Encoder(self._of_features, self.pixels, encode, self.frames, mean_feature, name=self.name)

    @cached_property
    def _of_features(self) -> str:
        """A hash that identifies the scorer's features in the store and in signatures. Includes the configuration,
        which affects the features.
        """
        return hashlib.blake2b(f"{self.fingerprint} {settings_of(self.model)}".encode(), digest_size=12).hexdigest()

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Preprocesses PIL pictures for the model and returns floats, B×C×height×width.

        For NaFlex variants of SigLIP 2, which keep the aspect ratio, returns B×patches×(pixels + 3), where each patch's
        pixels are followed by its validity and the shape of the grid.
        """
        read = self.processor(images=list(images), return_tensors="pt")
        pixels: torch.Tensor = read["pixel_values"]
        if "spatial_shapes" not in read:
            return pixels
        shapes_BP2 = read["spatial_shapes"][:, None].expand(-1, pixels.shape[1], -1)
        return torch.cat([pixels, read["pixel_attention_mask"][..., None].to(pixels), shapes_BP2.to(pixels)], dim=2)

    def image_features(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Computes L2-normalized features, B×D, from the output of `pixels`."""
        pixels, shapes = pixels_BCHW.to(self.device), {}  # in float32, because bf16 cannot represent grid shapes
        if pixels.ndim == 3:
            shapes = {"pixel_attention_mask": pixels[..., -3].long(), "spatial_shapes": pixels[:, 0, -2:].long()}
            pixels = pixels[..., :-3]
        output = self.model.get_image_features(pixel_values=pixels.to(self.dtype), **shapes)
        return unit_rows(output.pooler_output, f"{self.name}: the features of pictures")

    def text_features(self, texts: Sequence[str], batch_size: int | None = None) -> torch.Tensor:
        """Computes L2-normalized features, N×D, for whole captions, without gradients.

        Equal texts are encoded only once. Texts that exceed the window are truncated and counted in ``cut_texts``.
        Batches contain texts of similar length and are padded to the longest text instead of the window; since text
        towers are causal or masked, this does not change the features. The default batch size is 256 texts, or 64 on a
        CPU, where padding costs more than additional calls. Raises `TellapartError` if there are no texts, or if a
        feature is zero or not finite.
        """
        batch_size = batch_size or (64 if self.device.type == "cpu" else 256)
        unique = list(dict.fromkeys(texts))
        rows = self.tokenize(unique)
        shared = self.shared and len(unique) >= ranks.count()
        mine = rows[ranks.share(len(rows))] if shared else rows
        features: torch.Tensor | None = None
        with in_mode(self.model, False), torch.no_grad():
            for chosen, tokens_RT, valid_RT in self._batches(mine, batch_size):
                block = self.row_features(tokens_RT, valid_RT)
                if features is None:
                    features = torch.empty(len(mine), block.shape[1], dtype=block.dtype, device=block.device)
                features[torch.tensor(chosen, device=block.device)] = block
        if features is None:
            raise TellapartError("No text to encode; expected at least one caption")
        if shared:
            features = collectives.gather_rows(features)
        where = {text: i for i, text in enumerate(unique)}
        return features[torch.tensor([where[text] for text in texts], device=features.device)]

    def _batches(
        self, rows: Sequence[Sequence[int]], batch_size: int
    ) -> Iterator[tuple[Sequence[int], torch.Tensor, torch.Tensor]]:
        """Yields batches of rows of similar length: the indices of the rows, and the padded rows."""
        for chosen in blocks_of(sorted(range(len(rows)), key=lambda i: len(rows[i])), batch_size):
            yield chosen, *self.pad([rows[i] for i in chosen])

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns each text's token ids, including special tokens, truncated to ``window`` tokens."""
        rows = self._whole_rows(texts)
        self.cut_texts += sum(len(row) > self.window for row in rows)
        end = self.tokenizer.eos_token_id
        return [row if len(row) <= self.window else [*row[: self.window - 1], end or row[-1]] for row in rows]

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Counts the tokens in each text, including special tokens, without truncation."""
        return [len(row) for row in self._whole_rows(texts)]

    def _whole_rows(self, texts: Sequence[str]) -> list[list[int]]:
        return list(self.tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]) if texts else []

    @property
    def has_token_features(self) -> bool:
        """Returns whether single tokens can be embedded in the same space as pictures.

        They can if the text feature is a projection of one token's state, as in CLIP.
        """
        text = getattr(self.model.config, "text_config", None)
        return str(getattr(text, "model_type", "")).startswith("clip") and hasattr(self.model, "text_projection")

    def token_features(self, texts: Sequence[str], batch_size: int = 64) -> list[tuple[list[int], np.ndarray]]:
        """Returns each text's token ids, including special tokens, and the tokens' L2-normalized features, T×D,
        float32.

        Each token's state is projected in the same way as the end token's state, whose projection is the text's
        feature. Texts are truncated and counted as in `text_features`. Raises `TellapartError` if the model does not
        have token features.
        """
        if not self.has_token_features:
            raise TellapartError(
                f"{self.name} does not return token features; expected a scorer that has a text tower like CLIP's"
            )
        rows = self.tokenize(texts)
        features: list[np.ndarray] = [np.empty(0)] * len(rows)
        with in_mode(self.model, False), torch.no_grad():
            for chosen, tokens_RT, valid_RT in self._batches(rows, batch_size):
                mask_RT = valid_RT.long().to(self.device)
                output = self.model.get_text_features(input_ids=tokens_RT.to(self.device), attention_mask=mask_RT)
                for i, state_TD in zip(chosen, self.model.text_projection(output.last_hidden_state), strict=True):
                    own_TD = unit_rows(state_TD[: len(rows[i])], f"{self.name}: the features of tokens")
                    features[i] = own_TD.cpu().numpy()
        return list(zip(rows, features, strict=True))

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        pad = self.tokenizer.pad_token_id or 0
        tokens_RT, valid_RT = pad_rows(rows, pad)
        if self.fixed_length:
            extra = max(0, self.window - tokens_RT.shape[1])
            tokens_RT, valid_RT = F.pad(tokens_RT, (0, extra), value=pad), F.pad(valid_RT, (0, extra), value=False)
            if self.tokenizer.padding_side == "left":  # because the feature is taken from the last position
                places = tokens_RT.shape[1]
                place_RT = (torch.arange(places) + valid_RT.sum(1, keepdim=True)) % places
                tokens_RT, valid_RT = tokens_RT.gather(1, place_RT), valid_RT.gather(1, place_RT)
        return tokens_RT, valid_RT

    @property
    def fixed_length(self) -> bool:
        """Returns whether texts must be padded to the window. SigLIP was trained that way, without a mask."""
        return str(self.model.config.model_type).startswith("siglip")

    def row_features(self, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes L2-normalized features, R×D, for rows of tokens, with gradients if they are enabled."""
        mask = {} if self.fixed_length else {"attention_mask": valid_RT.long().to(self.device)}
        output = self.model.get_text_features(input_ids=tokens_RT.to(self.device), **mask)
        return unit_rows(output.pooler_output, f"{self.name}: the features of texts")

    def save(self, folder: str | Path) -> None:
        folder = Path(folder)
        silence_transformers()
        for part in (self.model, self.tokenizer, self.processor):
            part.save_pretrained(folder)
        readable_weights(folder)
        write_sums(folder)

    def parts(self) -> dict[str, torch.nn.Module]:
        return {"scorer": self.model}

    def _frozen_image_features(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        with in_mode(self.model, False), torch.no_grad():
            return self.image_features(pixels_BCHW)


def unit_rows(rows: torch.Tensor, what: str) -> torch.Tensor:
    """L2-normalizes the last axis in float32.

    If gradients are disabled, raises `TellapartError` for a row without a direction, that is, if it contains only
    zeros, contains NaN or infinity, or its norm overflows.
    """
    rows = rows.float()
    unit = F.normalize(rows, dim=-1)
    if not torch.is_grad_enabled() and not ((unit.norm(dim=-1) - 1).abs() < 1e-3).all():
        raise TellapartError(
            f"{what} contain rows of zeros, NaN or infinity, which match every picture equally; the weights are "
            "damaged, or overflow in this precision; try --precision fp32 or another scorer"
        )
    return unit


def mean_feature(features_FD: torch.Tensor) -> torch.Tensor:
    """Returns the normalized mean of the frame features, D. The feature of a single frame is returned unchanged."""
    return F.normalize(features_FD.mean(0), dim=-1) if len(features_FD) > 1 else features_FD[0]


def text_window(model: Any, tokenizer: Any) -> int:
    """Returns the text tower's maximum text length in tokens.

    For CLIP, this is the number of position embeddings, because the tokenizers of long-text CLIP models often still
    declare 77. RoBERTa and similar models reserve some positions for padding.
    """
    text = getattr(model.config, "text_config", model.config)
    kind, positions = str(getattr(text, "model_type", "")), int(getattr(text, "max_position_embeddings", 512))
    if kind.startswith("clip"):
        return positions
    if "roberta" in kind or kind.startswith("altclip"):
        positions -= 1 + int(getattr(text, "pad_token_id", None) or 0)
    return min(positions, int(tokenizer.model_max_length))
