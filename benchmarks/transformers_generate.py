"""Generates captions with transformers' ``generate``, as the reference for benchmarks and tests.

Supports all decodings. All rows are padded to the length of the longest row, and the picture is copied for every beam.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from tellapart.captioners.blip import Blip
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.clipcap import ClipCap
from tellapart.captioners.kv_cache import CACHE
from tellapart.captioners.recurrent import Recurrent, RecurrentModel
from tellapart.captioners.sampling import next_token
from tellapart.captioners.text_only import TextOnly
from tellapart.captioners.transformers import Hf
from tellapart.models.decoding import Decoding


def generate(
    captioner: Captioner, visual: torch.Tensor, decoding: Decoding, uniform_RT: torch.Tensor | None = None
) -> torch.Tensor:
    """Generates tokens_RT for the pictures. Tokens after a row's first stop token are undefined.

    ``uniform_RT``: random numbers with which tokens are sampled, as in `tellapart.captioners.decoding.generate`.
    """
    model, inputs, before, start = model_and_inputs(captioner, visual)
    config = generation_config(decoding, captioner.tokenizer, captioner.stop_tokens)
    config.suppress_tokens = list(captioner.suppressed_tokens) or None
    owners = (model, getattr(model, "language_model", None))
    with torch.no_grad(), ExitStack() as stack:
        if isinstance(captioner, Hf):
            stack.enter_context(captioner._precomputed_vision())
        stack.enter_context(default_generation_settings(*owners, start=start))
        tokens_RT: torch.Tensor = model.generate(
            **inputs, generation_config=config, logits_processor=token_samplers(decoding, uniform_RT, before)
        )
    return tokens_RT[:, before:]


def model_and_inputs(captioner: Captioner, visual: torch.Tensor) -> tuple[Any, dict[str, Any], int, int | None]:
    """Returns the generating model, its inputs, the number of prompt tokens per row, and a decoder's first token."""
    rows, device = len(visual), captioner.device
    if isinstance(captioner, ClipCap):
        prefix_BPH = captioner.model.prefix(visual, captioner.prompt_ids)
        mask_BP = torch.ones(prefix_BPH.shape[:2], dtype=torch.long, device=device)
        return captioner.model.language_model, {"inputs_embeds": prefix_BPH, "attention_mask": mask_BP}, 0, None
    if isinstance(captioner, Blip):
        start_BT = captioner._start(rows)
        inputs = {"input_ids": start_BT, "attention_mask": torch.ones_like(start_BT), "encoder_hidden_states": visual}
        inputs["encoder_attention_mask"] = torch.ones(visual.shape[:2], dtype=torch.long, device=device)
        return captioner.model.text_decoder, inputs, start_BT.shape[1], None
    if isinstance(captioner, Recurrent):
        values_BPH, there_BP = captioner.model.look(visual)
        start_B1 = torch.full((rows, 1), captioner.model.config.bos_token_id, device=device)
        inputs = {"input_ids": start_B1, "values": values_BPH, "there": there_BP}
        return generating(captioner.model), inputs, 1, None
    if isinstance(captioner, TextOnly):
        ids_BP, there_BP = captioner.prompts(visual)
        inputs = {"input_ids": ids_BP, "attention_mask": there_BP.long()}
        return captioner.model, inputs, ids_BP.shape[1], None
    assert isinstance(captioner, Hf)
    inputs = captioner._inputs(visual)
    if not captioner.is_encoder_decoder:
        return captioner.model, inputs, inputs["input_ids"].shape[1], None
    begun_BT = inputs["decoder_input_ids"] = captioner._begun(rows)
    return captioner.model, inputs, begun_BT.shape[1], int(begun_BT[0, 0])


def generation_config(decoding: Decoding, tokenizer: Any, stop_tokens: Sequence[int]) -> GenerationConfig:
    """Converts ``decoding`` to the settings of transformers' ``generate``."""
    return GenerationConfig(
        max_new_tokens=decoding.max_tokens,
        do_sample=decoding.kind == "sample",
        temperature=decoding.temperature if decoding.kind == "sample" else None,
        top_k=0 if decoding.kind == "sample" else None,
        num_beams=decoding.beams if decoding.kind == "beam" else 1,
        num_return_sequences=decoding.samples,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=list(stop_tokens),
    )


@contextmanager
def default_generation_settings(*owners: Any, start: int | None = None) -> Iterator[None]:
    """Ignores the checkpoint's generation settings (penalties, temperatures). ``start``: a decoder's first token."""
    with ExitStack() as stack:
        for owner in owners:
            if (own := getattr(owner, "generation_config", None)) is not None:
                owner.generation_config = GenerationConfig(decoder_start_token_id=start)
                stack.callback(setattr, owner, "generation_config", own)
        yield


class TokenSampler:
    """A logits processor that leaves only one token in each row, which it draws with the row's random number.

    before: number of prompt tokens.
    """

    def __init__(self, decoding: Decoding, uniform_RT: torch.Tensor, before: int) -> None:
        self.decoding, self.uniform_RT, self.before = decoding, uniform_RT, before

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token_R = next_token(scores, self.decoding, self.uniform_RT[:, input_ids.shape[1] - self.before])
        return scores.new_full(scores.shape, float("-inf")).scatter_(1, token_R[:, None], 0.0)


def token_samplers(decoding: Decoding, uniform_RT: torch.Tensor | None, before: int) -> list[TokenSampler]:
    return [] if uniform_RT is None else [TokenSampler(decoding, uniform_RT, before)]


class GeneratingRecurrentModel(RecurrentModel, GenerationMixin):
    """A `RecurrentModel` with the methods that ``generate`` needs."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # its state is that of an LSTM, not keys and values

    def forward(
        self,
        input_ids: torch.Tensor,
        values: torch.Tensor,
        there: torch.Tensor,
        state: tuple[torch.Tensor, ...] | None = None,
        return_dict: bool = True,
    ) -> CausalLMOutputWithPast:
        """Returns logits R×T×V after each of ``input_ids``. ``values`` and ``there``: the result of
        `RecurrentModel.look`.
        """
        if state is None:
            state = self.language_model.start(values, there)
        hidden_RTH, state = self.language_model(input_ids, state, values, there)
        kept: Any = {CACHE: state}
        return CausalLMOutputWithPast(logits=self.language_model.head(hidden_RTH), **kept)

    def prepare_inputs_for_generation(  # type: ignore[override]
        self,
        input_ids: torch.Tensor,
        values: torch.Tensor | None = None,
        there: torch.Tensor | None = None,
        **kept: Any,
    ) -> dict[str, Any]:
        return {"input_ids": input_ids[:, -1:], "values": values, "there": there, "state": kept.get(CACHE)}

    def _reorder_cache(self, state: tuple[torch.Tensor, ...], beam_idx: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.index_select(0, beam_idx.to(x.device)) for x in state)


def generating(model: RecurrentModel) -> GeneratingRecurrentModel:
    """Returns a model with ``generate`` and the same weights."""
    made: Any = GeneratingRecurrentModel(model.config)  # type: ignore[arg-type]
    made.to(model.device, model.dtype).train(model.training)
    made.mapper, made.language_model = model.mapper, model.language_model
    generating_model: GeneratingRecurrentModel = made
    return generating_model
