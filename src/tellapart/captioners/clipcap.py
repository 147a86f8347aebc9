"""ClipCap (Mokady et al. 2021): a vision encoder, a mapper that computes a prefix, and a causal language model."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from PIL import Image
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    CLIPVisionModelWithProjection,
    PreTrainedModel,
)
from transformers.configuration_utils import PreTrainedConfig

from tellapart.captioners.captioner import PartsCaptioner
from tellapart.captioners.context_length import check_room, max_tokens_after
from tellapart.captioners.kv_cache import CACHE, KVCache, explain_no_cache, no_cache_reason
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.errors import UsageError
from tellapart.models.saved import load_whole
from tellapart.models.vision import cells_of, config_of, pooled_of, width_of

FILES = "files"


@strict
class ClipCapConfig(PreTrainedConfig):
    """Configuration of a ClipCap.

    vision_config, text_config: any vision encoder and any causal language model from transformers.
    visual: the encoder output to use: ``projected`` (CLIP's image embedding, as in ClipCap), ``pooled``, or ``cells``
        (all grid features). ``files`` uses precomputed features of size D (``feature_size``) and no encoder.
    grid: number of cells per side after pooling; 0 keeps the encoder's grid.
    mapper: ``mlp`` (with H·P/2 tanh units, as in DiscriTune), ``transformer`` (ClipCap's alternative), or ``linear``
        (one prefix position per cell).
    prefix_length: the number P of prefix positions, for ``mlp`` and ``transformer``.
    """

    model_type = "clipcap"

    vision_config: Any = None
    text_config: Any = None
    visual: str = "projected"
    mapper: str = "mlp"
    prefix_length: int = 10
    mapper_layers: int = 8
    mapper_heads: int = 8
    mapper_constants: int = 10
    grid: int = 0
    feature_size: int = 0

    def __post_init__(self, **kwargs: Any) -> None:
        default = {"model_type": "clip_vision_model", "projection_dim": 512}
        self.vision_config = None if self.visual == FILES else config_of(self.vision_config or default)
        self.text_config = config_of(self.text_config or {"model_type": "gpt2"})
        if self.visual != FILES:
            del self.feature_size  # not a setting of these models; `settings_of` would otherwise change
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    @property
    def visual_size(self) -> int:
        """D, the width of a picture's features."""
        if self.visual == FILES:
            return self.feature_size
        config = self.vision_config
        return int(config.projection_dim) if self.visual == "projected" else width_of(config)

    @property
    def text_size(self) -> int:
        """H, the width of the language model."""
        return int(self.text_config.hidden_size)


class MlpMapper(nn.Module):
    """Maps D → H·P/2 → H·P with tanh in between, as in paper 3 (512 → 3840 → 7680 for GPT-2 and P = 10)."""

    def __init__(self, config: ClipCapConfig) -> None:
        super().__init__()
        self.prefix_length, wide = config.prefix_length, config.text_size * config.prefix_length
        self.model = nn.Sequential(nn.Linear(config.visual_size, wide // 2), nn.Tanh(), nn.Linear(wide // 2, wide))

    def forward(self, visual_BD: torch.Tensor) -> torch.Tensor:
        return torch.unflatten(self.model(visual_BD), -1, (self.prefix_length, -1))


class TransformerMapper(nn.Module):
    """ClipCap's transformer mapper. Its input is the picture, which takes ``mapper_constants`` positions, followed by P
    learned positions.
    """

    def __init__(self, config: ClipCapConfig) -> None:
        super().__init__()
        size, self.clip_length = config.text_size, config.mapper_constants
        self.linear = nn.Linear(config.visual_size, self.clip_length * size)
        self.prefix_const = nn.Parameter(torch.randn(config.prefix_length, size))
        layers = [MapperLayer(size, config.mapper_heads) for _ in range(config.mapper_layers)]
        self.transformer = nn.ModuleDict({"layers": nn.ModuleList(layers)})

    def forward(self, visual_BD: torch.Tensor) -> torch.Tensor:
        picture = self.linear(visual_BD).unflatten(-1, (self.clip_length, -1))
        hidden = torch.cat([picture, self.prefix_const.expand(len(picture), -1, -1)], dim=1)
        for layer in self.transformer["layers"]:  # type: ignore[attr-defined]
            hidden = layer(hidden)
        return hidden[:, self.clip_length :]


class MapperLayer(nn.Module):
    """A pre-norm transformer layer with ReLU and a feed-forward layer of twice the width, as in ClipCap's code."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attn = nn.ModuleDict(
            {
                "to_queries": nn.Linear(size, size, bias=False),
                "to_keys_values": nn.Linear(size, size * 2, bias=False),
                "project": nn.Linear(size, size),
            }
        )
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(size, size * 2), "fc2": nn.Linear(size * 2, size)})

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.norm1(hidden)
        keys, values = self.attn["to_keys_values"](normed).chunk(2, dim=-1)
        split = [
            x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (self.attn["to_queries"](normed), keys, values)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
        hidden = hidden + self.attn["project"](mixed)
        wide: torch.Tensor = self.mlp["fc2"](self.mlp["fc1"](self.norm2(hidden)).relu())
        return hidden + wide


class LinearMapper(nn.Module):
    """Maps each grid feature to one prefix position, with a learned position embedding."""

    def __init__(self, config: ClipCapConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(config.visual_size, config.text_size)
        self.norm = nn.LayerNorm(config.text_size)

    def forward(self, visual_BPD: torch.Tensor) -> torch.Tensor:
        prefix_BPH: torch.Tensor = self.norm(self.linear(visual_BPD))
        return prefix_BPH


MAPPERS = {"mlp": MlpMapper, "transformer": TransformerMapper, "linear": LinearMapper}


class ClipCapModel(PreTrainedModel):
    """Vision encoder → mapper → prefix of the language model. ``config_class`` is `ClipCapConfig`."""

    config_class = ClipCapConfig
    base_model_prefix = "clipcap"
    main_input_name = "pixel_values"

    def __init__(self, config: ClipCapConfig) -> None:
        super().__init__(config)
        if config.visual == FILES:
            self.vision: Any = None
        elif config.visual == "projected":
            self.vision = CLIPVisionModelWithProjection(config.vision_config)
        else:
            self.vision = AutoModel.from_config(config.vision_config)
        self.mapper = MAPPERS[config.mapper](config)
        self.language_model: Any = AutoModelForCausalLM.from_config(config.text_config)
        PreTrainedModel.post_init(self)

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Computes picture features: B×D, or B×cells×D if ``visual`` is ``cells``."""
        output = self.vision(pixel_values=pixels_BCHW)
        if self.config.visual == "projected":
            projected: torch.Tensor = output.image_embeds
            return projected
        return cells_of(output, self.config.grid) if self.config.visual == "cells" else pooled_of(output)

    def forward(self, pixel_values: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        """Computes logits B×T×V. Position t scores ``input_ids[:, t]``, given the picture and the preceding tokens."""
        hidden_BTH = self.hidden(self.encode(pixel_values), input_ids)
        logits_BTV: torch.Tensor = self.language_model.get_output_embeddings()(hidden_BTH)
        return logits_BTV

    def prefix(self, visual: torch.Tensor, prompt_ids: Sequence[int] = ()) -> torch.Tensor:
        """Returns the language model's input before a caption, B×P×H: the picture, followed by the prompt tokens."""
        prefix_BPH: torch.Tensor = self.mapper(visual)
        if not prompt_ids:
            return prefix_BPH
        ids_T = torch.tensor(prompt_ids, device=prefix_BPH.device)
        prompt_TH = self.language_model.get_input_embeddings()(ids_T).to(prefix_BPH.dtype)
        return torch.cat([prefix_BPH, prompt_TH.expand(len(prefix_BPH), -1, -1)], dim=1)

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, prompt_ids: Sequence[int] = ()) -> torch.Tensor:
        """Computes the last hidden states R×T×H in one teacher-forced pass. R = B·S, with each picture's S rows
        adjacent.
        """
        prefix_BPH = self.prefix(visual, prompt_ids)
        S, P = len(tokens_RT) // len(visual), prefix_BPH.shape[1]
        check_room(self.config.text_config, P, tokens_RT.shape[1])
        # Padding is on the right, so a causal model needs no mask.
        embeds_RTH = self.language_model.get_input_embeddings()(tokens_RT[:, :-1]).to(prefix_BPH.dtype)
        inputs = torch.cat([prefix_BPH.repeat_interleave(S, dim=0), embeds_RTH], dim=1)
        output = self.language_model.base_model(inputs_embeds=inputs, use_cache=False)
        hidden_RTH: torch.Tensor = output.last_hidden_state[:, P - 1 :]
        return hidden_RTH


REPEATED = 2048  # maximum number of prefix positions that a GPU recomputes faster than it launches a separate pass


class ClipCap(PartsCaptioner):
    """`ClipCapModel` as a captioner.

    ``prompt`` is inserted between the picture and each caption and is not part of the caption.
    """

    model: ClipCapModel
    options: ClassVar = {"prompt": str}
    sees_clips = True
    pixels_in_threads = True
    graphed = True

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str, prompt: str = "") -> None:
        super().__init__(model, tokenizer, processor, name)
        self.set_prompt(prompt)

    def set_prompt(self, prompt: str) -> None:
        self.prompt_ids = list(self.tokenizer(prompt, add_special_tokens=False)["input_ids"]) if prompt else []

    @property
    def view(self) -> str:
        config = self.model.config
        return f"{config.visual} {config.grid}" if config.grid else str(config.visual)

    @property
    def max_caption_tokens(self) -> int | None:
        return max_tokens_after(self.model.config.text_config, self._prefix_positions)

    @property
    def _prefix_positions(self) -> int:
        """Counts the positions before a caption: the mapper's prefix (or one position per cell of each frame), and the
        prompt.
        """
        asked = len(self.prompt_ids)
        if self.model.config.mapper != "linear":
            return int(self.model.config.prefix_length) + asked
        return self._cells * self.frames + asked

    @functools.cached_property
    def _cells(self) -> int:
        """Number of cells per frame in the vision encoder's output."""
        blank_1PD = self._encode_frozen(self.pixels([Image.new("RGB", (64, 64))]))
        return int(blank_1PD.shape[1])

    @property
    def caches(self) -> bool:
        return explain_no_cache(self.name, no_cache_reason(self.model.language_model))

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        prefix = self.model.config.prefix_length + len(self.prompt_ids)
        if visual.device.type == "cuda" and visual.ndim == 2 and len(tokens_RT) * prefix <= REPEATED:
            return self.hidden_uncached(visual, tokens_RT, valid_RT)
        return super().hidden(visual, tokens_RT, valid_RT)

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        return self.model.hidden(visual, tokens_RT, self.prompt_ids)

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> KVCache:
        config = self.model.config
        cells = config.visual == "cells"
        if visual.ndim != (3 if cells else 2):
            raise UsageError(
                f"this ClipCap expects {'one vector per cell' if cells else 'one vector'} for each picture, but the "
                f"features have shape {'×'.join(map(str, visual.shape[1:]))}; use other features with "
                "NAME?features=FOLDER"
            )
        prefix_BPH = self.model.prefix(visual, self.prompt_ids)
        check_room(config.text_config, prefix_BPH.shape[1], max_tokens)
        output = self.model.language_model.base_model(inputs_embeds=prefix_BPH, use_cache=True)
        return KVCache(getattr(output, CACHE), output.last_hidden_state[:, -1:], prefix_BPH.shape[1])

    def decode(self, state: KVCache, tokens_NT: torch.Tensor) -> torch.Tensor:
        model = self.model.language_model
        embeds_NTH = model.get_input_embeddings()(tokens_NT).to(state.hidden_N1H.dtype)
        output = model.base_model(inputs_embeds=embeds_NTH, use_cache=True, **{CACHE: state.cache})
        hidden_NTH: torch.Tensor = output.last_hidden_state
        return hidden_NTH

    @property
    def output_layer(self) -> Any:
        return self.model.language_model.get_output_embeddings()


AutoConfig.register("clipcap", ClipCapConfig)
AutoModel.register(ClipCapConfig, ClipCapModel)

CAPTIONERS.register(
    CaptionerEntry(
        name="clipcap",
        factory=lambda folder: (load_whole(ClipCapModel, folder, dtype=torch.float32), ClipCap),
        help="A vision encoder, a mapper and a causal language model.",
        label="ClipCap",
        model_type=True,
    )
)
