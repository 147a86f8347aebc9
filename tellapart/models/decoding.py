"""How captions are written down: decoding settings, and what generation returned as a `Rollout`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tellapart.types import Rollout

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig


class Decoding(BaseModel):
    """Settings of generation. ``samples`` captions per picture; ``max_tokens`` new ones, the end counted.

    ``greedy`` takes the likeliest token, ``sample`` draws from the softmax at ``temperature``,
    ``beam`` keeps ``beams`` hypotheses (returns the best ``samples`` of them, at most ``beams``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["greedy", "sample", "beam"] = "greedy"
    beams: int = Field(5, ge=1)
    temperature: float = Field(1.0, gt=0)
    samples: int = Field(1, ge=1)
    max_tokens: int = Field(30, ge=1)

    @model_validator(mode="after")
    def as_many_as_it_writes(self) -> Decoding:
        most = {"greedy": 1, "beam": self.beams}.get(self.kind, self.samples)
        if self.samples > most:
            raise ValueError(
                f"samples is {self.samples}, and '{self.kind}' writes {most}; set kind = 'sample' for more"
            )
        return self

    def generation_config(self, *, pad: int, start: int | None, ends: list[int]) -> GenerationConfig:
        """The same settings as transformers' ``generate`` takes them."""
        from transformers import GenerationConfig

        return GenerationConfig(
            max_new_tokens=self.max_tokens,
            do_sample=self.kind == "sample",
            temperature=self.temperature if self.kind == "sample" else None,
            top_k=0 if self.kind == "sample" else None,
            num_beams=self.beams if self.kind == "beam" else 1,
            num_return_sequences=self.samples,
            pad_token_id=pad,
            bos_token_id=start,
            eos_token_id=ends,
        )


def to_rollout(tokens_RT: torch.Tensor, tokenizer: Any, ends: list[int], samples: int) -> Rollout:
    """Generated ids as a `Rollout`: valid up to and including the first end token."""
    import torch

    is_end_RT = torch.isin(tokens_RT, torch.tensor(ends, device=tokens_RT.device))
    ends_before_RT = is_end_RT.long().cumsum(1) - is_end_RT.long()
    valid_RT = ends_before_RT == 0
    tokens_RT = tokens_RT.masked_fill(~valid_RT, tokenizer.pad_token_id)
    return Rollout(tokens_RT, valid_RT, decode_rows(tokens_RT, valid_RT, tokenizer), samples)


def decode_rows(tokens_RT: torch.Tensor, valid_RT: torch.Tensor, tokenizer: Any) -> list[str]:
    """Token rows as caption texts, special tokens left out."""
    rows = [row[valid].tolist() for row, valid in zip(tokens_RT, valid_RT, strict=True)]
    return [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]
