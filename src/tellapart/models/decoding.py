"""Decoding: the settings of generation that a recipe, a saved model and ``tellapart caption`` share."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tellapart.errors import UsageError
from tellapart.utils.rng import ItemSeeds

CANDIDATES = 48  # of a consensus: from 16 on more gain CIDEr, up to here R@1 (docs/research)
SCORER_WEIGHT = 0.1  # of a consensus with a scorer: more gains R@1, and loses precision and CIDEr (docs/research)
EVIDENCE = 0.5  # nats: a word stays where it is e^0.5 = 1.6 times as likely as for other pictures
# Which settings a kind reads, beside those that all read.
READ: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "sample": ("temperature",),
    "beam": ("beams", "length_penalty_over"),
    "consensus": ("candidates", "scorer_weight", "temperature"),
}


class Decoding(BaseModel):
    """Settings of generation. ``samples`` captions per picture; ``max_tokens`` new ones, the end counted.

    ``greedy`` takes the likeliest token, ``sample`` draws from the softmax at ``temperature``,
    ``beam`` keeps ``beams`` hypotheses (returns the best ``samples`` of them, at most ``beams``), ``consensus`` draws
    ``candidates`` at ``temperature`` and keeps the one that the others agree with most
    (`captioners.consensus`); only `captioners.generate_captions` does so, for it chooses among texts. With a
    ``scorer_weight`` a scorer chooses too (`inference.best_of.chosen_captions`): so much agreement is a nat worth of
    log-probability that the scorer finds the picture among its look-alikes.

    ``length_penalty_over``: the tokens by which beam search divides the log-probability of a hypothesis: ``new``, the
    generated ones with the end token (transformers from 4.36 on), or ``all``, prompt and generated ones without the end
    token (transformers 4.15, with which the papers' captions were written). See `captioners.beam_search`.

    ``confidence``: nouns that the captioner writes with a smaller probability are dropped or become "thing", and what a
    caption says twice it says once; 0 leaves captions as they are written.

    A setting that ``kind`` does not read may stand beside it as its default alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["greedy", "sample", "beam", "consensus"] = "greedy"
    beams: int = Field(5, ge=1)
    length_penalty_over: Literal["new", "all"] = Field("new", exclude_if="new".__eq__)
    candidates: int = Field(CANDIDATES, ge=3, exclude_if=CANDIDATES.__eq__)  # fingerprints stay what they were
    scorer_weight: float = Field(0.0, ge=0, exclude_if=(0.0).__eq__)
    temperature: float = Field(1.0, gt=0)
    samples: int = Field(1, ge=1)
    max_tokens: int = Field(30, ge=1)
    confidence: float = Field(0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def as_many_as_it_writes(self) -> Decoding:
        most = {"greedy": 1, "beam": self.beams, "consensus": 1}.get(self.kind, self.samples)
        if self.samples > most:
            raise ValueError(
                f"samples is {self.samples}, and '{self.kind}' writes {most}; set kind = 'sample' for more"
            )
        return self

    @model_validator(mode="after")
    def is_read(self) -> Decoding:
        for name in sorted(self.model_fields_set & {name for names in READ.values() for name in names}):
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default and name not in READ[self.kind] and (name, value) != ("beams", 1):
                kinds = " or ".join(f"'{kind}'" for kind, names in READ.items() if name in names)
                raise ValueError(
                    f"{name} is {value}, which kind = '{self.kind}' does not read; leave it out (or set it to its "
                    f"default, {default}), or set kind to {kinds}"
                )
        return self

    @property
    def asks_scorer(self) -> bool:
        return self.kind == "consensus" and self.scorer_weight > 0

    @property
    def draws(self) -> bool:
        """Returns whether tokens are drawn at random."""
        return self.kind in ("sample", "consensus")

    @property
    def drawn(self) -> Decoding:
        """Returns what a captioner generates for this: the candidates of a consensus, else what is returned."""
        if self.kind != "consensus":
            return self
        return self.model_copy(update={"kind": "sample", "samples": self.candidates})

    def uniform(self, items: int, device: torch.device, seeds: ItemSeeds | None = None) -> torch.Tensor | None:
        """uniform_RT, one number in [0, 1) for every token that may be drawn; None where none is.

        ``seeds`` are those of the ``items``; without them the numbers come from torch's own generator.
        """
        if self.kind == "consensus":
            raise ValueError("a consensus is chosen among texts; call generate_captions, or generate with .drawn")
        if self.kind != "sample":
            return None
        if seeds is None:
            uniform_RT = torch.rand(items * self.samples, self.max_tokens, dtype=torch.float64)
        elif len(seeds) == items:
            uniform_RT = seeds.uniform("tokens", self.max_tokens, self.samples)
        else:
            raise ValueError(f"seeds of {len(seeds)} items for {items}")
        return uniform_RT.to(device, torch.float32 if device.type == "mps" else torch.float64)  # which has no float64


DEFAULT = Decoding(kind="beam", beams=5, max_tokens=30)  # of models that carry no settings of their own


def check_choice(decoding: Decoding, best_of: int | None, has_scorer: bool) -> None:
    """Raises `UsageError` where samples are to be chosen by a scorer that is missing, or a scorer has no choice."""
    if best_of is not None and (best_of < 2 or not has_scorer):
        raise UsageError("best-of needs at least 2 samples and a scorer; type: --best-of 10 --scorer MODEL")
    if decoding.asks_scorer and not has_scorer:
        raise UsageError("a consensus with scorer_weight needs a scorer; type: --consensus 48 --scorer MODEL")
    if has_scorer and best_of is None and not decoding.asks_scorer:
        raise UsageError("a scorer chooses among samples; type --best-of 10 or --consensus 48 with it, or leave it out")
