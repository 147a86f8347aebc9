"""How captions are written: settings, the choice of a token, the loop over tokens, and the `Rollout` in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tellapart.types import Rollout
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig

CANDIDATES = 48  # of a consensus: from 16 on more gain CIDEr, up to here R@1 (docs/log.md)
SCORER_WEIGHT = 0.1  # of a consensus with a scorer: more gains R@1, and loses precision and CIDEr (docs/log.md)
GOING = 0.75  # rows that have ended are left out when no more than this share goes on
# Which settings a kind reads, beside those that all read.
READ: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "sample": ("temperature",),
    "beam": ("beams",),
    "consensus": ("candidates", "scorer_weight", "temperature"),
}
Scores = Callable[["torch.Tensor"], "torch.Tensor"]  # outputs N×H to logits N×V


class Decoding(BaseModel):
    """Settings of generation. ``samples`` captions per picture; ``max_tokens`` new ones, the end counted.

    ``greedy`` takes the likeliest token, ``sample`` draws from the softmax at ``temperature``,
    ``beam`` keeps ``beams`` hypotheses (returns the best ``samples`` of them, at most ``beams``), ``consensus`` draws
    ``candidates`` at ``temperature`` and keeps the one that the others agree with most
    (`captioners.consensus`); only `captioners.generate_captions` does so, for it chooses among texts. With a
    ``scorer_weight`` a scorer chooses too (`inference.best_of.chosen_captions`): so much agreement is a nat worth of
    log-probability that the scorer finds the picture among its look-alikes.

    ``confidence``: nouns that the captioner writes with a smaller probability are dropped or become "thing", and what a
    caption says twice it says once; 0 leaves captions as they are written.

    A setting that ``kind`` does not read may stand beside it as its default alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["greedy", "sample", "beam", "consensus"] = "greedy"
    beams: int = Field(5, ge=1)
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
                    f"{name} is {value:g}, which kind = '{self.kind}' does not read; leave it out (or set it to its "
                    f"default, {default:g}), or set kind to {kinds}"
                )
        return self

    @property
    def asks_scorer(self) -> bool:
        return self.kind == "consensus" and self.scorer_weight > 0

    @property
    def drawn(self) -> Decoding:
        """What a captioner generates for this: the candidates of a consensus, else what is returned."""
        if self.kind != "consensus":
            return self
        return self.model_copy(update={"kind": "sample", "samples": self.candidates})

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

    def uniform(self, items: int, device: torch.device, seeds: ItemSeeds | None = None) -> torch.Tensor | None:
        """uniform_RT, one number in [0, 1) for every token that may be drawn; None where none is.

        ``seeds`` are those of the ``items``; without them the numbers come from torch's own generator.
        """
        import torch

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


def next_token(scores_RV: torch.Tensor, decoding: Decoding, uniform_R: torch.Tensor | None) -> torch.Tensor:
    """The next token of each row: the likeliest, or the one whose share of the probabilities ``uniform_R`` falls into.

    Inverse transform sampling: each row needs one number, so that its token does not depend on the other rows.
    """
    if uniform_R is None:
        return scores_RV.argmax(-1)
    sums_RV = (scores_RV.float() / decoding.temperature).softmax(-1).cumsum(-1, dtype=uniform_R.dtype)
    below_RV = sums_RV <= uniform_R[:, None] * sums_RV[:, -1:]
    return below_RV.sum(-1).clamp(max=sums_RV.shape[-1] - 1)


class Prefix(Protocol):
    """What was read of N pictures and of the tokens after them. Outputs are hidden states, or logits without a head."""

    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def output_N1H(self) -> torch.Tensor:
        """The output that scores the first token."""
        ...

    def rows(self, row_M: torch.Tensor) -> Self:
        """These rows, each as often as it is named; what they read later leaves this prefix as it is."""
        ...

    def extend(self, tokens_NT: torch.Tensor) -> torch.Tensor:
        """Read further tokens: outputs N×T×H, one after each token."""
        ...


def generate_after(
    prefix: Prefix,
    scores: Scores,
    decoding: Decoding,
    ends: Sequence[int],
    uniform_RT: torch.Tensor | None = None,
    suppressed: Sequence[int] = (),
) -> torch.Tensor:
    """Greedy captions after each prefix, or those drawn with ``uniform_RT``, R×T, without ``suppressed`` tokens.

    What stands after a row's first end means nothing. On a GPU the loop never waits for the device: rows stay, and
    whether all have ended is looked at when the answer has arrived.
    """
    import torch

    B, device = len(prefix), prefix.device
    row_N = torch.arange(B * decoding.samples, device=device)
    tokens_RT = row_N.new_full((len(row_N), decoding.max_tokens), ends[0])
    end_E, suppressed_K = torch.tensor(list(ends), device=device), torch.tensor(list(suppressed), device=device).long()
    prefix = prefix.rows(row_N // decoding.samples)
    output_N1H, going_N = prefix.output_N1H, torch.ones_like(row_N, dtype=torch.bool)
    waiting = Waiting(device)
    for place in range(decoding.max_tokens):
        scores_NV = scores(output_N1H[:, -1])
        if len(suppressed):
            scores_NV = scores_NV.index_fill(-1, suppressed_K, -torch.inf)
        token_N = next_token(scores_NV, decoding, None if uniform_RT is None else uniform_RT[row_N, place])
        tokens_RT[row_N, place] = token_N
        going_N = going_N & ~torch.isin(token_N, end_E)
        going = waiting.count(going_N)
        if not going or place + 1 == decoding.max_tokens:
            break
        if going <= GOING * len(row_N):
            kept_N = going_N.nonzero()[:, 0]
            prefix, row_N, token_N, going_N = prefix.rows(kept_N), row_N[kept_N], token_N[kept_N], going_N[kept_N]
        output_N1H = prefix.extend(token_N[:, None])
    return tokens_RT[:, : place + 1]


class Waiting:
    """How many rows go on: on a CPU at once; on a GPU all of them, until a count of none has been copied back."""

    def __init__(self, device: torch.device) -> None:
        self.at_once = device.type != "cuda"
        self.copies: list[tuple[torch.Tensor, torch.cuda.Event]] = []

    def count(self, going_N: torch.Tensor) -> int:
        if self.at_once:
            return int(going_N.sum())
        if any(event.query() and not int(copied) for copied, event in self.copies):
            return 0
        import torch

        copied = torch.empty((), dtype=torch.long, pin_memory=True)
        copied.copy_(going_N.sum(), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self.copies.append((copied, event))
        return len(going_N)


class TokenSampler:
    """Sampling by row for transformers' ``generate``: a logits processor that leaves each row one token.

    ``before``: how many tokens of a row are not new.
    """

    def __init__(self, decoding: Decoding, uniform_RT: torch.Tensor, before: int) -> None:
        self.decoding, self.uniform_RT, self.before = decoding, uniform_RT, before

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token_R = next_token(scores, self.decoding, self.uniform_RT[:, input_ids.shape[1] - self.before])
        return scores.new_full(scores.shape, float("-inf")).scatter_(1, token_R[:, None], 0.0)


def token_samplers(decoding: Decoding, uniform_RT: torch.Tensor | None, before: int) -> list[TokenSampler]:
    """What ``generate`` takes as ``logits_processor``; nothing where nothing is drawn."""
    return [] if uniform_RT is None else [TokenSampler(decoding, uniform_RT, before)]


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
