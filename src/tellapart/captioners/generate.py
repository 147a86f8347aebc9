"""Generates captions: prefill once per picture, then decode token by token (greedy, sampling, beam search).

`generate` serves every captioner. A captioner computes the state of its decoder after the picture and the prompt
(``prefill``), hidden states after further tokens (``decode``), and logits (``compute_logits``); the state is a
`DecoderState`: a `KVCache` of transformers, BLIP's, or that of an LSTM. Beam search gives token for token what
transformers' ``generate`` gives, but pictures that are finished leave the batch. Captions differ in length, and padding
costs as much as words, so teacher forcing (`hidden_cached`) scores captions of like length together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
import torch.nn.functional as F
from transformers import Cache, EncoderDecoderCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from tellapart.errors import TellapartError
from tellapart.models.decoding import Decoding
from tellapart.types import Rollout
from tellapart.utils.messages import say_once
from tellapart.utils.rng import ItemSeeds

GOING = 0.75  # finished rows leave the batch when no more than this share goes on
GROUPS, AT_LEAST = 4, 32  # groups of like length in teacher forcing, and rows in one
NEVER = -1.0e9  # the log-probability of what must not be chosen, as in transformers
# The name of the KV cache, as an argument and in an output; `cache` from transformers 5.24 on.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


class DecoderState(Protocol):
    """State of a decoder for N rows after the tokens so far; `decode` of its captioner updates it in place."""

    def __len__(self) -> int: ...

    @property
    def hidden_N1H(self) -> torch.Tensor:
        """Last hidden state after `prefill`, from which the first token is scored."""
        ...

    def select(self, row_M: torch.Tensor) -> Self:
        """Returns the state of these rows, each as often as it is named; this one stays as it is."""
        ...


class Decoder(Protocol):
    """A captioner as decoding uses it; see `tellapart.captioners.base.Captioner` for its members."""

    name: str
    tokenizer: Any

    @property
    def device(self) -> torch.device: ...
    @property
    def stop_tokens(self) -> Sequence[int]: ...
    @property
    def suppressed_tokens(self) -> Sequence[int]: ...
    def prefill(self, visual: torch.Tensor, max_tokens: int) -> DecoderState: ...
    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor: ...
    def compute_logits(self, hidden_NH: torch.Tensor) -> torch.Tensor: ...


@torch.no_grad()
def generate(decoder: Decoder, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
    """Generates ``decoding.samples`` captions for each of B pictures; captions of a picture are adjacent rows.

    A caption ends with the first of ``decoder.stop_tokens``, which is part of it, or after ``decoding.max_tokens``.
    ``seeds``: one for each picture, from which its tokens are drawn; None: torch's generator. Raises `TellapartError`
    where logits are NaN.
    """
    drawn = decoding.kind not in ("greedy", "beam")
    uniform_RT = decoding.uniform(len(visual), visual.device, seeds) if drawn else None
    state = decoder.prefill(visual, decoding.max_tokens)
    if decoding.kind == "beam":
        tokens_RT = beam_search(decoder, state, decoding)
    else:
        tokens_RT = sample(decoder, state, decoding, uniform_RT)
    return to_rollout(tokens_RT, decoder.tokenizer, decoder.stop_tokens, decoding.samples)


def check_finite(name: str, logits_NV: torch.Tensor) -> torch.Tensor:
    """Returns the logits of the first tokens. Raises `TellapartError` where they are NaN."""
    if bool(logits_NV.isnan().any()):
        raise TellapartError(
            f"{name}: its logits are NaN, so it can write no captions; expected weights and features that are finite: "
            "load an earlier checkpoint, or type --precision fp32"
        )
    return logits_NV


def suppress(score_NV: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    """Returns the scores with -inf for ``tokens``, which are never generated."""
    return score_NV.index_fill(-1, torch.tensor(tokens, device=score_NV.device), -torch.inf) if tokens else score_NV


def next_token(logits_RV: torch.Tensor, decoding: Decoding, uniform_R: torch.Tensor | None) -> torch.Tensor:
    """Chooses the next token of each row: the likeliest, or by inverse transform sampling with ``uniform_R``.

    Each row takes one number, so that its token does not depend on the other rows.
    """
    if uniform_R is None:
        return logits_RV.argmax(-1)
    sums_RV = (logits_RV.float() / decoding.temperature).softmax(-1).cumsum(-1, dtype=uniform_R.dtype)
    below_RV = sums_RV <= uniform_R[:, None] * sums_RV[:, -1:]
    return below_RV.sum(-1).clamp(max=sums_RV.shape[-1] - 1)


def sample(decoder: Decoder, state: DecoderState, decoding: Decoding, uniform_RT: torch.Tensor | None) -> torch.Tensor:
    """Generates one caption for each of R = B·samples rows: greedy, or drawn with ``uniform_RT``. Returns tokens_RT.

    Tokens after a row's first stop token are undefined. On a GPU the loop never waits for the device: rows stay, and
    whether all have stopped is looked at when the answer has arrived.
    """
    device = decoder.device
    row_N = torch.arange(len(state) * decoding.samples, device=device)
    stop_E = torch.tensor(list(decoder.stop_tokens), device=device)
    tokens_RT = row_N.new_full((len(row_N), decoding.max_tokens), decoder.stop_tokens[0])
    state = state.select(row_N // decoding.samples)
    going_N, running = torch.ones_like(row_N, dtype=torch.bool), RunningCount(device)
    logits_NV = check_finite(decoder.name, decoder.compute_logits(state.hidden_N1H[:, -1]))
    for place in range(decoding.max_tokens):
        logits_NV = suppress(logits_NV, decoder.suppressed_tokens)
        token_N = next_token(logits_NV, decoding, None if uniform_RT is None else uniform_RT[row_N, place])
        tokens_RT[row_N, place] = token_N
        going_N = going_N & ~torch.isin(token_N, stop_E)
        going = running.count(going_N)
        if not going or place + 1 == decoding.max_tokens:
            break
        if going <= GOING * len(row_N):
            kept_N = going_N.nonzero()[:, 0]
            state, row_N, token_N, going_N = state.select(kept_N), row_N[kept_N], token_N[kept_N], going_N[kept_N]
        logits_NV = decoder.compute_logits(decoder.decode(state, token_N[:, None])[:, -1])
    return tokens_RT[:, : place + 1]


@dataclass
class Beams:
    """K hypotheses of each of B pictures: tokens_BKT (T: most tokens), and the score_BK by which they are ranked."""

    tokens_BKT: torch.Tensor
    score_BK: torch.Tensor

    def gather(self, place_BM: torch.Tensor) -> Beams:
        """Returns M of the hypotheses of each picture, by their places."""
        wide_BMT = place_BM[..., None].expand(-1, -1, self.tokens_BKT.shape[2])
        return Beams(self.tokens_BKT.gather(1, wide_BMT), self.score_BK.gather(1, place_BM))

    def grow(self, place: int, sum_BKV: torch.Tensor) -> tuple[Beams, torch.Tensor]:
        """Returns the K best hypotheses with one more token, and from_BK: the beam that each continues.

        ``sum_BKV``: their log-probabilities.
        """
        K, V = sum_BKV.shape[1:]
        score_BK, flat_BK = sum_BKV.flatten(1).topk(K)
        from_BK, token_BK = flat_BK // V, flat_BK % V
        grown = Beams(self.gather(from_BK).tokens_BKT, score_BK)
        grown.tokens_BKT[:, :, place] = token_BK
        return grown, from_BK


def beam_search(decoder: Decoder, state: DecoderState, decoding: Decoding) -> torch.Tensor:
    """Returns the best ``samples`` of ``beams`` hypotheses of each picture, best first, tokens_RT.

    Finished hypotheses are ranked by their log-probability per token, the stop token counted (length penalty 1). The
    search of a picture is over when its best running hypothesis is no better than its worst finished one. Tokens after
    a row's first stop token are undefined.
    """
    logits_NV = check_finite(decoder.name, decoder.compute_logits(state.hidden_N1H[:, -1]))
    B, K, T, device = len(state), decoding.beams, decoding.max_tokens, logits_NV.device
    stop_E = torch.tensor(list(decoder.stop_tokens), device=device)
    result_BKT = torch.full((B, K, T), decoder.stop_tokens[0], device=device)
    score_BK = torch.full((B, K), NEVER, device=device)
    running = Beams(result_BKT.clone(), score_BK.index_fill(1, torch.tensor([0], device=device), 0.0))
    finished, done_BK = Beams(result_BKT.clone(), score_BK), torch.zeros(B, K, dtype=torch.bool, device=device)
    picture_N, open_count = torch.arange(B, device=device), RunningCount(device)
    open_N = torch.ones(B, dtype=torch.bool, device=device)
    beams = 1  # the K beginnings are one
    for place in range(T):
        log_p_NV = suppress(logits_NV.float().log_softmax(-1), decoder.suppressed_tokens)
        sum_BKV = log_p_NV.unflatten(0, (-1, beams)).expand(-1, K, -1) + running.score_BK[..., None]
        # A hypothesis finishes where it is among the K best of all, and its picture is still searched.
        best, _ = running.grow(place, sum_BKV)
        stopped_BK = torch.isin(best.tokens_BKT[:, :, place], stop_E) | (place + 1 == T)
        mean_BK = best.score_BK / (place + 1) + ~open_N[:, None] * NEVER + ~stopped_BK * NEVER
        merged = Beams(
            torch.cat([finished.tokens_BKT, best.tokens_BKT], dim=1), torch.cat([finished.score_BK, mean_BK], dim=1)
        )
        best_BK = merged.score_BK.topk(K).indices
        finished, done_BK = merged.gather(best_BK), torch.cat([done_BK, stopped_BK], dim=1).gather(1, best_BK)
        worst_B = torch.where(done_BK, finished.score_BK.amin(1, keepdim=True), NEVER).amin(1)
        result_BKT[picture_N] = finished.tokens_BKT
        if place + 1 == T:
            break
        # The K best that have not stopped go on.
        sum_BKV.index_fill_(-1, stop_E, 2 * NEVER)
        running, from_BK = running.grow(place, sum_BKV)
        open_N = open_N & (running.score_BK[:, 0] / (place + 1) > worst_B)
        if not (count := open_count.count(open_N)):
            break
        row_NK = torch.arange(len(picture_N), device=device)[:, None] * beams + (from_BK if beams > 1 else 0)
        if count <= GOING * len(picture_N):
            kept_N = open_N.nonzero()[:, 0]
            running, finished = (Beams(each.tokens_BKT[kept_N], each.score_BK[kept_N]) for each in (running, finished))
            picture_N, open_N, done_BK, row_NK = picture_N[kept_N], open_N[kept_N], done_BK[kept_N], row_NK[kept_N]
        state, beams = state.select(row_NK.expand(-1, K).flatten()), K
        token_N1 = running.tokens_BKT[:, :, place].reshape(-1, 1)
        logits_NV = decoder.compute_logits(decoder.decode(state, token_N1)[:, -1])
    return result_BKT[:, : decoding.samples, : place + 1].flatten(0, 1)


class RunningCount:
    """Counts the rows that go on: on a CPU at once; on a GPU all, until a count of none has been copied back."""

    def __init__(self, device: torch.device) -> None:
        self.at_once = device.type != "cuda"
        self.copies: list[tuple[torch.Tensor, torch.cuda.Event]] = []

    def count(self, going_N: torch.Tensor) -> int:
        if self.at_once:
            return int(going_N.sum())
        if any(event.query() and not int(copied) for copied, event in self.copies):
            return 0

        copied = torch.empty((), dtype=torch.long, pin_memory=True)
        copied.copy_(going_N.sum(), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self.copies.append((copied, event))
        return len(going_N)


def to_rollout(tokens_RT: torch.Tensor, tokenizer: Any, stop_tokens: Sequence[int], samples: int) -> Rollout:
    """Returns generated ids as a `Rollout`: valid up to and including the first stop token."""
    is_stop_RT = torch.isin(tokens_RT, torch.tensor(list(stop_tokens), device=tokens_RT.device))
    stops_before_RT = is_stop_RT.long().cumsum(1) - is_stop_RT.long()
    valid_RT = stops_before_RT == 0
    tokens_RT = tokens_RT.masked_fill(~valid_RT, tokenizer.pad_token_id)
    return Rollout(tokens_RT, valid_RT, decode_rows(tokens_RT, valid_RT, tokenizer), samples)


def decode_rows(tokens_RT: torch.Tensor, valid_RT: torch.Tensor, tokenizer: Any) -> list[str]:
    """Returns token rows as caption texts, without special tokens."""
    rows = [row[valid].tolist() for row, valid in zip(tokens_RT, valid_RT, strict=True)]
    return [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]


@dataclass
class KVCache:
    """State of a language model of transformers for N rows: keys and values, and what else a forward pass needs.

    ``mask_NP``: which positions of the prompts are tokens; None: all. ``position_N1``: the position of the first token,
    where the model does not count by itself. ``encoded_NPD``: an encoder's states. ``decoded``: tokens after the
    prompt.
    """

    cache: Any
    hidden_N1H: torch.Tensor
    mask_NP: torch.Tensor | None = None
    position_N1: torch.Tensor | None = None
    encoded_NPD: torch.Tensor | None = None
    encoded_mask_NP: torch.Tensor | None = None
    decoded: int = 0

    def __len__(self) -> int:
        return len(self.hidden_N1H)

    def select(self, row_M: torch.Tensor) -> Self:
        chosen = copy.copy(self)
        chosen.cache = select_rows(self.cache, row_M)
        for name in ("hidden_N1H", "mask_NP", "position_N1", "encoded_NPD", "encoded_mask_NP"):
            if (tensor := getattr(self, name)) is not None:
                setattr(chosen, name, tensor[row_M])
        return chosen

    def attention_mask(self, tokens: int) -> torch.Tensor | None:
        """Returns the mask of the prompt, of the tokens after it, and of ``tokens`` more; None where nothing is
        padding."""
        if self.mask_NP is None:
            return None
        return F.pad(self.mask_NP, (0, self.decoded + tokens), value=1)

    def positions(self, tokens: int) -> torch.Tensor:
        """Returns the positions N×T of the next ``tokens``."""
        assert self.position_N1 is not None
        return self.position_N1 + self.decoded + torch.arange(tokens, device=self.position_N1.device)


def select_rows(cache: Any, row_N: torch.Tensor) -> Any:
    """Returns the keys and values of these rows, each as often as it is named; ``cache`` stays as it is."""
    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
        return EncoderDecoderCache(*(select_rows(part, row_N) for part in parts))
    chosen: Cache = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(row_N)
    return chosen


def supports_cache(model: Any) -> bool:
    """Returns whether a model of transformers can decode from a KV cache."""
    return no_cache_reason(model) is None


def no_cache_reason(model: Any) -> str | None:
    """Returns why a model of transformers cannot decode from a KV cache; None where it can."""
    asked = "is_activation_checkpointing"  # its name in newer transformers
    asked = asked if hasattr(type(model), asked) else "is_gradient_checkpointing"
    if not model._supports_default_dynamic_cache() or model._is_stateful:
        return f"a {model.config.model_type} model keeps no keys and values"
    if model.training and getattr(model, asked):
        return "gradient checkpointing keeps no keys and values"
    return None


def explain_no_cache(name: str, reason: str | None) -> bool:
    """Returns whether there is a KV cache, which is where there is no ``reason`` against it; prints one once."""
    if reason is not None:
        say_once(f"{name}: the picture is read again for every caption, because {reason}")
    return reason is None


def hidden_cached(
    captioner: Decoder, state: DecoderState, tokens_RT: torch.Tensor, length_R: torch.Tensor
) -> torch.Tensor:
    """Computes hidden_RTH, teacher-forced, from the state after B pictures; R = B·S, a picture's S rows are adjacent.

    Rows count up to their ``length``; beyond the longest of its group a row's hidden states are zero.
    """
    S = len(tokens_RT) // len(state)
    groups, outputs = length_groups(length_R), []
    for row_N in groups:
        longest = int(length_R[row_N].max()) if len(groups) > 1 else tokens_RT.shape[1]
        rows = state.select(row_N // S)
        hidden_NTH = rows.hidden_N1H
        if longest > 1:
            hidden_NTH = torch.cat([hidden_NTH, captioner.decode(rows, tokens_RT[row_N, : longest - 1])], dim=1)
        outputs.append(F.pad(hidden_NTH, (0, 0, 0, tokens_RT.shape[1] - hidden_NTH.shape[1])))
    return outputs[0] if len(groups) == 1 else torch.cat(outputs)[torch.cat(groups).argsort()]


def length_groups(length_R: torch.Tensor) -> list[torch.Tensor]:
    """Returns the rows in groups of like length; in one on a GPU, where a launch costs more than padding."""
    count = min(GROUPS, len(length_R) // AT_LEAST) if length_R.device.type == "cpu" else 1
    return list(length_R.argsort(stable=True).tensor_split(count)) if count > 1 else [
        torch.arange(len(length_R), device=length_R.device)
    ]  # fmt: skip


@contextmanager
def replaced_forward(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Replaces the forward of ``module``, or what already replaces it, within the context."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before
