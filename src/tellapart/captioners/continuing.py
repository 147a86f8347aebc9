"""How the families of vision-language models go on from what they have read of a picture and its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import torch

from tellapart.captioners.layouts import LAYOUTS
from tellapart.captioners.prefix import CACHE, CachedPrefix, hidden_after, no_cache_reason

TOLERANCE = 1e-3  # of scores, in float32


class VisionLanguageModel(Protocol):
    """What `tellapart.captioners.hf.Hf` is, as far as it is needed here."""

    model: Any
    is_encoder_decoder: bool
    grids: Any

    @property
    def device(self) -> torch.device: ...
    @property
    def end(self) -> int: ...
    @property
    def pads_prompts(self) -> bool: ...
    @property
    def continues(self) -> bool: ...
    def blank_visual(self) -> torch.Tensor: ...
    def without_head(self) -> AbstractContextManager[None]: ...
    def read(self, visual: torch.Tensor, tokens: int) -> CachedPrefix: ...
    def hidden_plain(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor: ...


def unshared_reason(captioner: VisionLanguageModel) -> str | None:
    """Why a captioner cannot read a picture once for all its captions; None where it can.

    Families with a layout are tested to give the same outputs; any other is tried on a blank picture, once.
    """
    if (reason := no_cache_reason(captioner.model)) is not None:
        return reason
    known = captioner.model.config.model_type in LAYOUTS
    return None if known or captioner.continues else "after a cached prompt its outputs are others"


def continues(captioner: VisionLanguageModel) -> bool:
    """Whether outputs after a cached prompt are those of one pass, for two captions of a blank picture."""
    training = captioner.model.training
    captioner.model.eval()
    tokens_RT = torch.full((2, 3), captioner.end, device=captioner.device)
    valid_RT = torch.ones_like(tokens_RT, dtype=torch.bool)
    try:
        with torch.no_grad(), torch.autocast(captioner.device.type, enabled=False):
            visual = captioner.blank_visual()
            plain_RTH = captioner.hidden_plain(visual, tokens_RT, valid_RT).float()
            shared_RTH = hidden_after(captioner.read(visual, 3), tokens_RT, valid_RT.sum(1)).float()
        gap = TOLERANCE if captioner.model.dtype == torch.float32 else 100 * TOLERANCE
        return torch.allclose(shared_RTH, plain_RTH, rtol=gap, atol=gap)
    except Exception:  # a family that nobody has tried raises anything
        return False
    finally:
        captioner.model.train(training)


def continued(captioner: VisionLanguageModel, inputs: Mapping[str, torch.Tensor], output: Any) -> CachedPrefix:
    """The prefix behind ``output``, which the model gave for the prompts in ``inputs``."""
    inner = getattr(output, "language_model_outputs", None) or output
    read = CachedPrefix(getattr(inner, CACHE), output.logits[:, -1:], partial(extend, captioner))
    mask_BP = inputs.get("attention_mask")
    if captioner.is_encoder_decoder:
        read.encoded_NPD, read.encoded_mask_NP = inner.encoder_last_hidden_state, mask_BP
        return read
    if mask_BP is not None and captioner.pads_prompts:
        read.mask_NP = mask_BP
    kind = captioner.model.config.model_type
    if kind == "git":  # the picture has no places in the text
        read.position_N1 = torch.full((len(read.output_N1H), 1), inputs["input_ids"].shape[1], device=captioner.device)
    deltas_B1 = getattr(captioner.model.base_model, "rope_deltas", None)
    if "image_grid_thw" in inputs and deltas_B1 is not None:
        assert mask_BP is not None
        read.position_N1 = mask_BP.sum(1, keepdim=True) + deltas_B1
    return read


def extend(captioner: VisionLanguageModel, tokens_NT: torch.Tensor, prefix: CachedPrefix) -> torch.Tensor:
    """Outputs N×T×H after further tokens."""
    model, more = captioner.model, {CACHE: prefix.cache, "use_cache": True}
    with captioner.without_head():
        if captioner.is_encoder_decoder:
            return extend_decoder(model, tokens_NT, prefix, more)
        if (mask_NP := prefix.attention_mask(tokens_NT.shape[1])) is not None:
            more["attention_mask"] = mask_NP
        if prefix.position_N1 is not None:
            position_NT = prefix.positions(tokens_NT.shape[1])
            axes = captioner.grids is not None  # time, height and width, which are one for words
            more["position_ids"] = position_NT.expand(3, -1, -1) if axes else position_NT
        if hasattr(model.config, "num_query_tokens"):  # BLIP-2 and InstructBLIP want a picture each time
            model = model.language_model
        output_NTH: torch.Tensor = model(input_ids=tokens_NT, **more).logits
    return output_NTH


def extend_decoder(model: Any, tokens_NT: torch.Tensor, prefix: CachedPrefix, more: Mapping[str, Any]) -> torch.Tensor:
    """`extend` for a decoder beside an encoder, whose keys and values are in the cache."""
    from transformers.modeling_outputs import BaseModelOutput

    if model.config.model_type == "vision-encoder-decoder":
        output = model.decoder(input_ids=tokens_NT, encoder_hidden_states=prefix.encoded_NPD, **more)
    else:
        output = getattr(model, "language_model", model)(
            decoder_input_ids=tokens_NT,
            encoder_outputs=BaseModelOutput(last_hidden_state=prefix.encoded_NPD),
            attention_mask=prefix.encoded_mask_NP,
            **more,
        )
    output_NTH: torch.Tensor = output.logits
    return output_NTH
