"""Scorers built from pretrained parts: any vision encoder and any text encoder, each with a head.

The encoders may stay frozen. Each picture is then encoded only once, and captioners with the same encoder and view
share its row in the feature store. References are also encoded only once.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tellapart.models.digests import settings_of, weights_fingerprint
from tellapart.models.independent_rows import encode_independently
from tellapart.models.loading_errors import loading_errors
from tellapart.models.saved import checked_model_folder
from tellapart.models.training_mode import in_mode
from tellapart.models.vision import cells_of, config_of, pooled_of, width_of
from tellapart.scorers.base import Scorer, unit_rows
from tellapart.types import Encoder

if TYPE_CHECKING:
    from tellapart.features.rows import RowStore


@strict
class PartsConfig(PreTrainedConfig):
    """The configuration of a scorer built from parts.

    vision_config, text_config: the configurations of any vision encoder and any text encoder in transformers.
    visual: ``pooled`` for one vector per picture, or ``cells``, which are pooled with learned weights.
    grid: the number of cells per side after a first pooling; 0 keeps the encoder's grid.
    pooling: whether the text vector is the ``mean`` of the token states (sentence encoders), the ``first`` token's
        state (BERT), or the ``pooler`` output.
    hidden: the width of a head's hidden layer; 0 makes the head a linear layer.
    dropout: the dropout rate for the input of a head.
    """

    model_type = "scorer_from_parts"

    vision_config: Any = None
    text_config: Any = None
    projection_dim: int = 256
    visual: Literal["pooled", "cells"] = "pooled"
    grid: int = 0
    pooling: Literal["mean", "first", "pooler"] = "mean"
    hidden: int = 0
    dropout: float = 0.0
    logit_scale_init_value: float = 2.6592

    def __post_init__(self, **kwargs: Any) -> None:
        self.vision_config = config_of(self.vision_config or {"model_type": "efficientnet_lite"})
        self.text_config = config_of(self.text_config or {"model_type": "bert"})
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]


class Head(nn.Module):
    """Projects an encoder's output to the scorer's feature space with dropout and a linear layer. If ``hidden`` is set,
    adds the output of a parallel MLP of that width.
    """

    def __init__(self, width: int, config: PartsConfig) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(config.dropout)
        self.linear = nn.Linear(width, config.projection_dim)
        self.mlp = (
            nn.Sequential(
                nn.Linear(width, config.hidden),
                nn.GELU(),
                nn.Dropout(config.dropout),
                nn.Linear(config.hidden, config.projection_dim),
            )
            if config.hidden
            else None
        )

    def forward(self, features_BD: torch.Tensor) -> torch.Tensor:
        normed_BD = self.dropout(self.norm(features_BD))
        out_BE: torch.Tensor = self.linear(normed_BD)
        return out_BE if self.mlp is None else out_BE + self.mlp(normed_BD)


class PartsModel(PreTrainedModel):
    """Two encoders, each with a head. Like CLIP, provides ``get_image_features``, ``get_text_features`` and
    ``logit_scale``.
    """

    config_class = PartsConfig
    base_model_prefix = "parts"
    main_input_name = "pixel_values"

    def __init__(self, config: PartsConfig) -> None:
        super().__init__(config)
        width = width_of(config.vision_config)
        self.vision_model: Any = AutoModel.from_config(config.vision_config)
        self.text_model: Any = AutoModel.from_config(config.text_config)
        self.cell_weight = nn.Linear(width, 1) if config.visual == "cells" else None
        self.image_head = Head(width, config)
        self.text_head = Head(width_of(config.text_config), config)
        self.logit_scale = nn.Parameter(torch.tensor(config.logit_scale_init_value))
        PreTrainedModel.post_init(self)

    def look(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Computes the vision encoder's output: B×cells×D, or B×D if ``visual`` is ``pooled``."""
        output = self.vision_model(pixel_values=pixel_values)
        return cells_of(output, self.config.grid) if self.config.visual == "cells" else pooled_of(output)

    def place_images(self, visual: torch.Tensor) -> torch.Tensor:
        """Computes features B×E from the output of `look`. Averages cells with learned weights first."""
        if self.cell_weight is not None:
            visual = (self.cell_weight(visual).softmax(1) * visual).sum(1)
        placed_BE: torch.Tensor = self.image_head(visual)
        return placed_BE

    def read(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Computes one vector per text, R×H, with only the text encoder."""
        output = self.text_model(input_ids=input_ids, attention_mask=attention_mask)
        if self.config.pooling == "pooler":
            pooled_RH: torch.Tensor = output.pooler_output
            return pooled_RH
        states_RTH: torch.Tensor = output.last_hidden_state
        if self.config.pooling == "first":
            return states_RTH[:, 0]
        valid_RT1 = attention_mask[..., None].to(states_RTH.dtype)
        return (states_RTH * valid_RT1).sum(1) / valid_RT1.sum(1).clamp(min=1)

    def get_image_features(self, pixel_values: torch.Tensor) -> BaseModelOutputWithPooling:
        """Computes unnormalized features, B×E, and returns them as ``pooler_output``."""
        return BaseModelOutputWithPooling(pooler_output=self.place_images(self.look(pixel_values)))

    def get_text_features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> BaseModelOutputWithPooling:
        """Computes unnormalized features, R×E, and returns them as ``pooler_output``."""
        return BaseModelOutputWithPooling(pooler_output=self.text_head(self.read(input_ids, attention_mask)))

    def train(self, mode: bool = True) -> PartsModel:
        """Sets training mode, but keeps frozen encoders in evaluation mode (no dropout, fixed running means)."""
        super().train(mode)
        for tower in (self.vision_model, self.text_model):
            if not any(parameter.requires_grad for parameter in tower.parameters()):
                tower.eval()
        return self


class PartsScorer(Scorer):
    """A scorer that wraps a `PartsModel`.

    ``kept_texts``: a cache of the frozen text encoder's outputs while the heads are trained, keyed by a hash of the
        token row; None disables the cache. ``text_rows``: the same cache on disk, shared by all scorers with this text
        encoder.
    """

    model: PartsModel

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        super().__init__(model, tokenizer, processor, name)
        self.kept_texts: dict[str, torch.Tensor] | None = None
        self.text_rows: RowStore | None = None

    def parts(self) -> dict[str, nn.Module]:
        """Returns the trainable parts ``vision``, ``text`` and ``heads``."""
        model = self.model
        heads = nn.ModuleDict({"image": model.image_head, "text": model.text_head})
        if model.cell_weight is not None:
            heads["cells"] = model.cell_weight
        heads.register_parameter("scale", model.logit_scale)
        return {"vision": model.vision_model, "text": model.text_model, "heads": heads}

    @property
    def view(self) -> str:
        """See `Captioner.view`."""
        return f"{self.model.config.visual} {grid}" if (grid := self.model.config.grid) else self.model.config.visual

    @cached_property
    def tower(self) -> Encoder:
        """The vision encoder. Its fingerprint matches that of a captioner that uses this encoder and view.

        The encoder is hashed only once, so it must stay frozen.
        """
        vision = self.model.vision_model
        fingerprint = weights_fingerprint(vision, self.processor, f"{self.view} {settings_of(vision)}")
        return Encoder(fingerprint, self.pixels, self._look, name=self.name)

    @property
    def encoder(self) -> Encoder:
        return replace(super().encoder, tower=self.tower)

    def image_features(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Computes L2-normalized features, B×E, from the output of `pixels` or of `tower`."""
        given = pixels_BCHW.to(self.device, self.dtype)
        visual = self.model.look(given) if given.ndim == 4 else given
        return unit_rows(self.model.place_images(visual), f"{self.name}: the features of pictures")

    def row_features(self, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        mask_RT = valid_RT.long()
        if self.kept_texts is None or any(p.requires_grad for p in self.model.text_model.parameters()):
            read_RH = self.model.read(tokens_RT.to(self.device), mask_RT.to(self.device))
        else:
            read_RH = self._kept(tokens_RT.cpu(), mask_RT.cpu(), self.kept_texts)
        return unit_rows(self.model.text_head(read_RH), f"{self.name}: the features of texts")

    def _kept(self, tokens_RT: torch.Tensor, mask_RT: torch.Tensor, kept: dict[str, torch.Tensor]) -> torch.Tensor:
        """Returns the text encoder's outputs for these rows. Reads cached outputs from disk and caches new outputs.

        No output depends on the other rows.
        """
        rows = [row[mask] for row, mask in zip(tokens_RT, mask_RT.bool(), strict=True)]
        keys = [hashlib.blake2b(row.numpy().tobytes(), digest_size=16).hexdigest() for row in rows]
        if (store := self.text_rows) is not None:
            known = list(
                store.known_rows(self._text_label, list(dict.fromkeys(key for key in keys if key not in kept)))
            )
            if known and (stored := store.read(self._text_label, known)) is not None:
                kept.update(zip(known, torch.from_numpy(np.array(stored)).to(self.device), strict=True))
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in kept}
        by_length = sorted(new, key=lambda key: len(new[key]))
        for _, group in itertools.groupby(by_length, lambda key: len(new[key])):  # equal lengths need no padding
            chosen = list(group)
            ids_NT = torch.stack([new[key] for key in chosen]).to(self.device)
            with torch.no_grad():
                read_NH = encode_independently(functools.partial(self._read_rows, ids_NT), len(ids_NT))
            kept.update(zip(chosen, (read_H.clone() for read_H in read_NH), strict=True))
        if store is not None and new:
            new_NH = torch.stack([kept[key] for key in by_length]).float().cpu().numpy()
            store.append(self._text_label, by_length, new_NH, title=f"{self.name} texts")
        return torch.stack([kept[key] for key in keys])

    def _read_rows(self, ids_NT: torch.Tensor, row_M: torch.Tensor) -> torch.Tensor:
        """Computes the text encoder's outputs for these rows of unpadded texts, M×H."""
        ids_MT = ids_NT[row_M]
        return self.model.read(ids_MT, torch.ones_like(ids_MT))

    @cached_property
    def _text_label(self) -> str:
        """The name of the text table in the feature store. The text encoder is hashed only once, because it stays
        frozen.
        """
        text, pooling = self.model.text_model, self.model.config.pooling
        return f"texts {weights_fingerprint(text, None, f'{pooling} {settings_of(text)}')}"

    def _look(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        with in_mode(self.model, False), torch.no_grad():
            visual: torch.Tensor = self.model.look(pixels_BCHW.to(self.device, self.dtype)).float()
        return visual


def make_parts_scorer(vision: tuple[Any, Any], text: tuple[Any, Any], name: str, **settings: Any) -> PartsScorer:
    """Builds a scorer with new heads.

    vision: the (encoder, processor) for pictures. text: the (encoder, tokenizer). settings: keyword arguments for
        `PartsConfig`.
    """
    config = PartsConfig(vision_config=vision[0].config, text_config=text[0].config, **settings)
    model = PartsModel(config)
    with torch.no_grad():
        model.vision_model.load_state_dict(vision[0].state_dict())
        model.text_model.load_state_dict(text[0].state_dict())
    scorer = PartsScorer(model, text[1], vision[1], name)
    scorer.kept_texts = {}
    return scorer


def load_text(name: str) -> tuple[Any, Any]:
    """Loads any text encoder in transformers, in fp32, and its tokenizer. Raises the same errors as `load_scorer`."""

    where = checked_model_folder(name, "text encoder")
    with loading_errors(name, "a text encoder such as sentence-transformers/all-MiniLM-L6-v2"):
        model: Any = AutoModel.from_pretrained(
            where, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    return getattr(model, "text_model", model), tokenizer


AutoConfig.register("scorer_from_parts", PartsConfig)
AutoModel.register(PartsConfig, PartsModel)
