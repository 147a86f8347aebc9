"""Generates captions: prefill once per picture, then decode (greedy, sampling, beam search) from the KV cache.

A family provides a `Prefix`, the state after prefill; `generate_after` and `captions_after` decode from it. Beam search
gives token for token what transformers' ``generate`` gives, but does not copy the keys and values of the picture's
patches for every beam, and pictures that are finished leave the batch. Captions differ in length, and padding costs as
much as words, so teacher forcing (`hidden_after`) scores captions of like length together. `generate_stepwise` needs
nothing but a captioner's logits and computes them anew for every token: right for any captioner, fast for none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
import torch.nn.functional as F
from transformers import Cache, EncoderDecoderCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from tellapart.models.decoding import Decoding
from tellapart.types import Rollout
from tellapart.utils.messages import say
from tellapart.utils.rng import ItemSeeds

GOING = 0.75  # rows that have ended are left out when no more than this share goes on
Scores = Callable[[torch.Tensor], torch.Tensor]  # outputs N×H to logits N×V


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

    is_end_RT = torch.isin(tokens_RT, torch.tensor(ends, device=tokens_RT.device))
    ends_before_RT = is_end_RT.long().cumsum(1) - is_end_RT.long()
    valid_RT = ends_before_RT == 0
    tokens_RT = tokens_RT.masked_fill(~valid_RT, tokenizer.pad_token_id)
    return Rollout(tokens_RT, valid_RT, decode_rows(tokens_RT, valid_RT, tokenizer), samples)


def decode_rows(tokens_RT: torch.Tensor, valid_RT: torch.Tensor, tokenizer: Any) -> list[str]:
    """Token rows as caption texts, special tokens left out."""
    rows = [row[valid].tolist() for row, valid in zip(tokens_RT, valid_RT, strict=True)]
    return [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]


GROUPS, AT_LEAST = 4, 32  # groups of like length, and rows in one
# What transformers calls keys and values, as an argument and in an output; `cache` from 5.24 on.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


@dataclass
class CachedPrefix:
    """Keys and values of a model of transformers. ``forward(tokens_NT, prefix)`` reads further tokens into ``cache``.

    ``mask_NP``: which positions of the prompts are tokens; None: all. ``position_N1``: the position of the first token,
    where the model does not count by itself. ``encoded_NPD``: an encoder's states.
    """

    cache: Any
    output_N1H: torch.Tensor
    forward: Callable[[torch.Tensor, CachedPrefix], torch.Tensor]
    mask_NP: torch.Tensor | None = None
    position_N1: torch.Tensor | None = None
    encoded_NPD: torch.Tensor | None = None
    encoded_mask_NP: torch.Tensor | None = None
    read: int = 0  # tokens after the prompt

    def __len__(self) -> int:
        return len(self.output_N1H)

    @property
    def device(self) -> torch.device:
        return self.output_N1H.device

    def rows(self, row_M: torch.Tensor) -> Self:
        chosen = copy.copy(self)
        chosen.cache = select_rows(self.cache, row_M)
        for name in ("output_N1H", "mask_NP", "position_N1", "encoded_NPD", "encoded_mask_NP"):
            if (tensor := getattr(self, name)) is not None:
                setattr(chosen, name, tensor[row_M])
        return chosen

    def extend(self, tokens_NT: torch.Tensor) -> torch.Tensor:
        output_NTH = self.forward(tokens_NT, self)
        self.read += tokens_NT.shape[1]
        return output_NTH

    def attention_mask(self, tokens: int) -> torch.Tensor | None:
        """Of the prompt, of what was read after it, and of ``tokens`` more; None where nothing is padding."""
        if self.mask_NP is None:
            return None
        return F.pad(self.mask_NP, (0, self.read + tokens), value=1)

    def positions(self, tokens: int) -> torch.Tensor:
        """The positions N×T of the next ``tokens``."""
        assert self.position_N1 is not None
        return self.position_N1 + self.read + torch.arange(tokens, device=self.position_N1.device)


def supports_cache(model: Any) -> bool:
    """Whether the language model can go on from the keys and values of what it has read."""
    return no_cache_reason(model) is None


def no_cache_reason(model: Any) -> str | None:
    """Why a model of transformers cannot go on from what it has read; None where it can."""
    asked = "is_activation_checkpointing"  # its name in newer transformers
    asked = asked if hasattr(type(model), asked) else "is_gradient_checkpointing"
    if not model._supports_default_dynamic_cache() or model._is_stateful:
        return f"a {model.config.model_type} model keeps no keys and values"
    if model.training and getattr(model, asked):
        return "gradient checkpointing keeps no keys and values"
    return None


_explained: set[str] = set()


def shares(name: str, reason: str | None) -> bool:
    """Whether pictures can be read once, which is where there is no ``reason`` against it; prints one once."""
    line = f"{name}: the picture is read again for every caption, because {reason}"
    if reason is not None and line not in _explained:
        _explained.add(line)
        say(line)
    return reason is None


def hidden_after(prefix: Prefix, tokens_RT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    """Outputs R×T×H, position t in front of ``tokens[:, t]``; R = B·S, the S rows of a picture together.

    Rows count up to their ``length``; beyond the longest of its group a row's outputs are zero.
    """
    S = len(tokens_RT) // len(prefix)
    groups, outputs = length_groups(length_R), []
    for row_N in groups:
        longest = int(length_R[row_N].max()) if len(groups) > 1 else tokens_RT.shape[1]
        rows = prefix.rows(row_N // S)
        output_NTH = rows.output_N1H
        if longest > 1:
            output_NTH = torch.cat([output_NTH, rows.extend(tokens_RT[row_N, : longest - 1])], dim=1)
        outputs.append(F.pad(output_NTH, (0, 0, 0, tokens_RT.shape[1] - output_NTH.shape[1])))
    return outputs[0] if len(groups) == 1 else torch.cat(outputs)[torch.cat(groups).argsort()]


def length_groups(length_R: torch.Tensor) -> list[torch.Tensor]:
    """The rows in groups of like length; in one on a GPU, where a launch costs more than padding."""
    count = min(GROUPS, len(length_R) // AT_LEAST) if length_R.device.type == "cpu" else 1
    return list(length_R.argsort(stable=True).tensor_split(count)) if count > 1 else [
        torch.arange(len(length_R), device=length_R.device)
    ]  # fmt: skip


def select_rows(cache: Any, row_N: torch.Tensor) -> Any:
    """The keys and values of these rows, each as often as it is named; ``cache`` stays as it is."""
    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
        return EncoderDecoderCache(*(select_rows(part, row_N) for part in parts))
    chosen: Cache = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(row_N)
    return chosen


NEVER = -1.0e9  # the log-probability of what must not be chosen, as in transformers


@dataclass
class Beams:
    """K hypotheses of each of B pictures: tokens_BKT (T is the most tokens), and what they are ranked by."""

    tokens_BKT: torch.Tensor
    score_BK: torch.Tensor

    def chosen(self, place_BM: torch.Tensor) -> Beams:
        """M of the hypotheses of each picture, by their places."""
        wide_BMT = place_BM[..., None].expand(-1, -1, self.tokens_BKT.shape[2])
        return Beams(self.tokens_BKT.gather(1, wide_BMT), self.score_BK.gather(1, place_BM))

    def pictures(self, kept_N: torch.Tensor) -> Beams:
        return Beams(self.tokens_BKT[kept_N], self.score_BK[kept_N])


def captions_after(
    prefix: Prefix,
    scores: Scores,
    decoding: Decoding,
    ends: Sequence[int],
    uniform_RT: torch.Tensor | None = None,
    suppressed: Sequence[int] = (),
) -> torch.Tensor:
    """Captions R×T after each prefix as ``decoding`` says: `beams_after`, or `generate_after`."""
    if decoding.kind == "beam":
        return beams_after(prefix, scores, decoding, ends, suppressed)
    return generate_after(prefix, scores, decoding, ends, uniform_RT, suppressed)


def beams_after(
    prefix: Prefix, scores: Scores, decoding: Decoding, ends: Sequence[int], suppressed: Sequence[int] = ()
) -> torch.Tensor:
    """The best ``samples`` of ``beams`` captions of each picture, R×T, without ``suppressed`` tokens.

    Hypotheses end with one of ``ends`` and are ranked by their log-probability per token. A picture's search is over
    when its best open hypothesis is no better than its worst finished one. What stands after a row's first end means
    nothing.
    """
    B, K, T, device = len(prefix), decoding.beams, decoding.max_tokens, prefix.device
    candidates = max(2, 1 + len(ends)) * K  # so many that K of them have not ended
    end_E, suppressed_S = torch.tensor(list(ends), device=device), torch.tensor(list(suppressed), device=device).long()
    result_BKT = torch.full((B, K, T), ends[0], device=device)
    score_BK = torch.full((B, K), NEVER, device=device)
    running = Beams(result_BKT.clone(), score_BK.index_fill(1, torch.tensor([0], device=device), 0.0))
    finished, done_BK = Beams(result_BKT.clone(), score_BK), torch.zeros(B, K, dtype=torch.bool, device=device)
    picture_N, waiting = torch.arange(B, device=device), Waiting(device)
    open_N = torch.ones(B, dtype=torch.bool, device=device)
    output_N1H, beams = prefix.output_N1H, 1  # the K beginnings are one
    for place in range(T):
        log_p_NV = scores(output_N1H[:, -1]).float().log_softmax(-1)
        if len(suppressed):
            log_p_NV = log_p_NV.index_fill(-1, suppressed_S, -torch.inf)
        V = log_p_NV.shape[-1]
        sum_BKV = log_p_NV.unflatten(0, (-1, beams)).expand(-1, K, -1) + running.score_BK[..., None]
        score_BC, flat_BC = sum_BKV.flatten(1).topk(candidates)
        from_BC, token_BC = flat_BC // V, flat_BC % V
        grown = Beams(running.tokens_BKT, running.score_BK).chosen(from_BC)
        grown = Beams(grown.tokens_BKT, score_BC)
        grown.tokens_BKT[:, :, place] = token_BC
        ended_BC = torch.isin(token_BC, end_E) | (place + 1 == T)
        # What goes on: the K best that have not ended.
        going = Beams(grown.tokens_BKT, score_BC + ended_BC * NEVER)
        next_BK = going.score_BK.topk(K).indices
        running, from_BK = going.chosen(next_BK), from_BC.gather(1, next_BK)
        # What has ended counts where it was among the K best of all, and its picture is still searched.
        ended_BC[:, K:] = False
        mean_BC = score_BC / (place + 1) + ~open_N[:, None] * NEVER + ~ended_BC * NEVER
        merged = Beams(
            torch.cat([finished.tokens_BKT, grown.tokens_BKT], dim=1), torch.cat([finished.score_BK, mean_BC], dim=1)
        )
        best_BK = merged.score_BK.topk(K).indices
        finished, done_BK = merged.chosen(best_BK), torch.cat([done_BK, ended_BC], dim=1).gather(1, best_BK)
        worst_B = torch.where(done_BK, finished.score_BK.amin(1, keepdim=True), NEVER).amin(1)
        open_N = open_N & (running.score_BK[:, 0] / (place + 1) > worst_B)
        result_BKT[picture_N] = finished.tokens_BKT
        count = waiting.count(open_N)
        if not count or place + 1 == T:
            break
        row_NK = torch.arange(len(picture_N), device=device)[:, None] * beams + (from_BK if beams > 1 else 0)
        if count <= GOING * len(picture_N):
            kept_N = open_N.nonzero()[:, 0]
            running, finished, row_NK = running.pictures(kept_N), finished.pictures(kept_N), row_NK[kept_N]
            picture_N, open_N, done_BK = picture_N[kept_N], open_N[kept_N], done_BK[kept_N]
        prefix, beams = prefix.rows(row_NK.expand(-1, K).flatten()), K
        output_N1H = prefix.extend(running.tokens_BKT[:, :, place].reshape(-1, 1))
    return result_BKT[:, : decoding.samples, : place + 1].flatten(0, 1)


class NextToken(Protocol):
    """What writing word by word needs of a captioner: the scores of every next token."""

    tokenizer: Any

    @property
    def end(self) -> int: ...

    def logits(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor: ...


def generate_stepwise(
    captioner: NextToken, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None
) -> Rollout:
    """Greedy, sampled, or beam search (hypotheses ranked by log p per token), as ``decoding`` says; no gradient."""
    with torch.no_grad():
        if decoding.kind == "beam":
            tokens_RT = beam_search(captioner, visual, decoding)
        else:
            uniform_RT = decoding.uniform(len(visual), visual.device, seeds)
            tokens_RT = generate_rows(captioner, visual, decoding, uniform_RT)
    return to_rollout(tokens_RT, captioner.tokenizer, [captioner.end], decoding.samples)


def next_scores(captioner: NextToken, visual: torch.Tensor, tokens_RT: torch.Tensor) -> torch.Tensor:
    """log p of every word after ``tokens``, R×V; R is a multiple of the pictures."""
    read_RT = torch.cat([tokens_RT, tokens_RT.new_full((len(tokens_RT), 1), captioner.end)], dim=1)
    scores_RTV = captioner.logits(visual, read_RT, torch.ones_like(read_RT, dtype=torch.bool))
    return scores_RTV[:, -1].float()


def generate_rows(
    captioner: NextToken, visual: torch.Tensor, decoding: Decoding, uniform_RT: torch.Tensor | None
) -> torch.Tensor:
    """One caption a row: the likeliest word each time, or the one that is drawn with ``uniform_RT``."""
    tokens_RT = torch.empty(len(visual) * decoding.samples, 0, dtype=torch.long, device=visual.device)
    done_R = torch.zeros(len(tokens_RT), dtype=torch.bool, device=visual.device)
    while tokens_RT.shape[1] < decoding.max_tokens and not bool(done_R.all()):
        scores_RV = next_scores(captioner, visual, tokens_RT)
        uniform_R = None if uniform_RT is None else uniform_RT[:, tokens_RT.shape[1]]
        word_R = next_token(scores_RV, decoding, uniform_R).masked_fill(done_R, captioner.end)
        tokens_RT, done_R = torch.cat([tokens_RT, word_R[:, None]], dim=1), done_R | (word_R == captioner.end)
    return tokens_RT


def beam_search(captioner: NextToken, visual: torch.Tensor, decoding: Decoding) -> torch.Tensor:
    """The best ``samples`` of ``beams`` hypotheses of each picture, best first."""
    B, K, end = len(visual), decoding.beams, captioner.end
    tokens_BKT = torch.empty(B, K, 0, dtype=torch.long, device=visual.device)
    sum_BK = torch.full((B, K), -torch.inf, device=visual.device)
    sum_BK[:, 0] = 0.0  # the K beginnings are one
    done_BK = torch.zeros_like(sum_BK, dtype=torch.bool)
    for _ in range(decoding.max_tokens):
        log_p_BKV = next_scores(captioner, visual, tokens_BKT.flatten(0, 1)).log_softmax(-1).unflatten(0, (B, K))
        over_V = torch.full_like(log_p_BKV[0, 0], -torch.inf)
        over_V[end] = 0.0  # a caption that has ended stays as it is
        sum_BKV = sum_BK[..., None] + torch.where(done_BK[..., None], over_V, log_p_BKV)
        V = sum_BKV.shape[-1]
        sum_BK, place_BK = sum_BKV.flatten(1).topk(K, dim=1)
        from_BK, word_BK = place_BK // V, place_BK % V
        before_BKT = tokens_BKT.gather(1, from_BK[..., None].expand(-1, -1, tokens_BKT.shape[2]))
        tokens_BKT = torch.cat([before_BKT, word_BK[..., None]], dim=2)
        done_BK = done_BK.gather(1, from_BK) | (word_BK == end)
        if bool(done_BK.all()):
            break
    ended_BKT = (tokens_BKT == end).long()
    length_BK = (ended_BKT.cumsum(2) - ended_BKT == 0).sum(2)  # up to and with the first end
    best_BS = (sum_BK / length_BK).topk(decoding.samples, dim=1).indices
    return tokens_BKT.gather(1, best_BS[..., None].expand(-1, -1, tokens_BKT.shape[2])).flatten(0, 1)


def identity(states: torch.Tensor) -> torch.Tensor:
    return states


@contextmanager
def replaced_forward(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """For the moment ``module`` computes ``forward`` instead of what it learnt, or of what already replaces it."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


@contextmanager
def default_generation_settings(*owners: Any, start: int | None = None) -> Iterator[None]:
    """For the moment what checkpoints say of generation (penalties, temperatures) counts for nothing in ``owners``.

    So sampling and scoring use the same distribution, and a model that was saved decodes as the one that it was made
    of. ``start``: the first token of a decoder.
    """
    from transformers import GenerationConfig

    with ExitStack() as stack:
        for owner in owners:
            if (own := getattr(owner, "generation_config", None)) is not None:
                owner.generation_config = GenerationConfig(decoder_start_token_id=start)
                stack.callback(setattr, owner, "generation_config", own)
        yield
