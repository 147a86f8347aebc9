"""Decoding settings, shared by recipes, saved models and ``tellapart caption``."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tellapart.utils.rng import ItemSeeds

CANDIDATES = 48  # samples per consensus; CIDEr still improves beyond 16, and R@1 improves up to 48 (docs/research)
# Weight of the scorer in a consensus. A larger weight improves R@1 but lowers precision and CIDEr (docs/research).
SCORER_WEIGHT = 0.1
EVIDENCE = 0.5  # in nats; keeps words that are at least e^0.5 = 1.6 times as likely as for other pictures
# Settings that each kind uses in addition to the common ones.
READ: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "sample": ("temperature",),
    "beam": ("beams", "length_penalty_over"),
    "consensus": ("candidates", "scorer_weight", "temperature"),
}


class Decoding(BaseModel):
    """Decoding settings.

    ``samples``: number of captions per picture. ``max_tokens``: maximum number of new tokens, including the end token.

    ``kind``: ``greedy`` takes the most likely token. ``sample`` samples from the softmax at ``temperature``. ``beam``
    keeps ``beams`` hypotheses and returns the best ``samples`` (at most ``beams``). ``consensus`` samples
    ``candidates`` captions at ``temperature`` and returns the caption that agrees best with all others
    (`captioners.consensus`); only `captioners.generate_captions` supports it, because it compares decoded captions.
    ``scorer_weight`` adds a scorer to the consensus (`inference.best_of.chosen_captions`). It is the weight of the
    log-probability, in nats, that the scorer retrieves the picture from among its look-alikes.

    ``length_penalty_over``: the tokens that beam search counts when it normalizes the log-probability of a hypothesis:
    ``new`` counts generated tokens including the end token (transformers since 4.36); ``all`` counts prompt and
    generated tokens without the end token (transformers 4.15, which generated the papers' captions). See
    `captioners.beam_search`.

    ``confidence``: minimum probability of nouns, at least 0 and less than 1. Less probable nouns are dropped or
    replaced with "thing", and repetitions are removed. 0 leaves captions unchanged.

    ``paragraphs``: whether to keep a caption's paragraphs. Otherwise, they are joined into one line.

    Settings that ``kind`` does not use must have their default values.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["greedy", "sample", "beam", "consensus"] = "greedy"
    beams: int = Field(5, ge=1)
    length_penalty_over: Literal["new", "all"] = Field("new", exclude_if="new".__eq__)
    candidates: int = Field(CANDIDATES, ge=3, exclude_if=CANDIDATES.__eq__)  # keeps fingerprints stable
    scorer_weight: float = Field(0.0, ge=0, exclude_if=(0.0).__eq__)
    temperature: float = Field(1.0, gt=0)
    samples: int = Field(1, ge=1)
    max_tokens: int = Field(30, ge=1)
    confidence: float = Field(0.0, ge=0, lt=1)
    paragraphs: bool = Field(False, exclude_if=False.__eq__)

    @model_validator(mode="after")
    def as_many_as_it_writes(self) -> Decoding:
        most = {"greedy": 1, "beam": self.beams, "consensus": 1}.get(self.kind, self.samples)
        if self.samples > most:
            raise ValueError(
                f"samples is {self.samples}, but kind = '{self.kind}' generates only {most}; for more samples, set "
                "kind = 'sample'"
            )
        return self

    @model_validator(mode="after")
    def is_read(self) -> Decoding:
        for name in sorted(self.model_fields_set & {name for names in READ.values() for name in names}):
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default and name not in READ[self.kind] and (name, value) != ("beams", 1):
                kinds = " or ".join(f"'{kind}'" for kind, names in READ.items() if name in names)
                raise ValueError(
                    f"{name} is {value}, but kind = '{self.kind}' does not use {name}; remove {name} (or set its "
                    f"default, {default}), or set kind to {kinds}"
                )
        return self

    @property
    def asks_scorer(self) -> bool:
        return self.kind == "consensus" and self.scorer_weight > 0

    @property
    def draws(self) -> bool:
        """Returns True if tokens are sampled."""
        return self.kind in ("sample", "consensus")

    @property
    def drawn(self) -> Decoding:
        """Returns the settings with which the captioner generates. For a consensus, these sample the candidates."""
        if self.kind != "consensus":
            return self
        return self.model_copy(update={"kind": "sample", "samples": self.candidates})

    def uniform(self, items: int, device: torch.device, seeds: ItemSeeds | None = None) -> torch.Tensor | None:
        """Returns uniform_RT, a random number in [0, 1) for each token to sample, or None if no tokens are sampled.

        ``seeds``: one seed per item. If None, uses torch's default generator.
        """
        if self.kind == "consensus":
            raise ValueError(
                "a consensus compares decoded captions, so generate cannot compute it; call generate_captions, or "
                "pass decoding.drawn to generate"
            )
        if self.kind != "sample":
            return None
        if seeds is None:
            uniform_RT = torch.rand(items * self.samples, self.max_tokens, dtype=torch.float64)
        elif len(seeds) == items:
            uniform_RT = seeds.uniform("tokens", self.max_tokens, self.samples)
        else:
            raise ValueError(f"Expected one seed per item; got {len(seeds)} seeds for {items} items")
        return uniform_RT.to(device, torch.float32 if device.type == "mps" else torch.float64)  # MPS has no float64


DEFAULT = Decoding(kind="beam", beams=5, max_tokens=30)  # for models that were saved without decoding settings
