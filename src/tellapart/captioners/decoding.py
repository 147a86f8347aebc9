"""Captions a batch of pictures with any captioner, by greedy decoding, sampling or beam search (`generate`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tellapart.captioners.beam_search import BeamSearch
from tellapart.captioners.decoder_state import Decoder, DecoderState
from tellapart.captioners.kv_cache import KVCache
from tellapart.captioners.sampling import SampleSearch
from tellapart.errors import TellapartError
from tellapart.models.decoding import Decoding
from tellapart.types import Rollout
from tellapart.utils.rng import ItemSeeds

GOING = 0.75  # finished rows are dropped when at most this fraction of the rows is still running


@torch.no_grad()
def generate(captioner: Decoder, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
    """Generates ``decoding.samples`` captions for each of B pictures, in adjacent rows.

    A caption ends with its first token in ``captioner.stop_tokens``, which is kept, or after ``decoding.max_tokens``
    tokens. ``seeds``: one seed per picture, used for sampling. If None, uses torch's default generator. Raises
    `TellapartError` if logits are NaN.
    """
    uniform_RT = decoding.uniform(len(visual), visual.device, seeds)
    state = captioner.begin(visual, decoding.max_tokens)
    if decoding.samples > 1 and decoding.kind != "beam":
        state = state.select(torch.arange(len(visual) * decoding.samples, device=visual.device) // decoding.samples)
    logits_NV = captioner.compute_logits(state.hidden_N1H[:, -1])
    if bool(logits_NV.isnan().any()):
        raise TellapartError(
            f"{captioner.name}: its logits are NaN, so it cannot generate captions; probably its weights or features "
            "are not finite; load an earlier checkpoint, or use --precision fp32"
        )
    if visual.device.type == "cuda" and captioner.graphs is not None and isinstance(state, KVCache):
        tokens_RT = captioner.graphs(captioner, state, logits_NV, decoding, uniform_RT)
    else:
        tokens_RT = generate_tokens(make_loop(captioner, state, logits_NV, decoding, uniform_RT), decoding.max_tokens)
    return to_rollout(tokens_RT, captioner.tokenizer, captioner.stop_tokens, decoding.samples)


def make_loop(
    captioner: Decoder,
    state: DecoderState,
    logits_NV: torch.Tensor,
    decoding: Decoding,
    uniform_RT: torch.Tensor | None,
) -> SampleSearch | BeamSearch:
    """Builds the decoding loop, positioned before the first token. ``logits_NV``: the first token's logits, computed
    from ``state``.
    """
    if decoding.kind == "beam":
        return BeamSearch(captioner, state, logits_NV, decoding)
    return SampleSearch(captioner, state, logits_NV, decoding, uniform_RT)


def generate_tokens(loop: SampleSearch | BeamSearch, max_tokens: int) -> torch.Tensor:
    """Runs a loop until all rows have stopped or ``max_tokens`` is reached. Returns the generated tokens_RT.

    On a GPU, the host never waits for the device. Finished rows stay in the batch, and the number of running rows is
    copied asynchronously; the loop ends when a count of zero arrives.
    """
    running = RunningCount(loop.running_N.device)
    for place in range(max_tokens):
        loop.choose(place)
        if place + 1 == max_tokens or not (count := running.count(loop.running_N)):
            break
        if count <= GOING * len(loop.running_N):
            loop.keep(loop.running_N.nonzero()[:, 0])
        loop.decode(place)
    return loop.result(place + 1)


class RunningCount:
    """Counts the running rows. On a GPU, reports all rows as running until a count of 0 arrives from the device."""

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
    """Converts generated ids to a `Rollout`, whose rows are valid up to and including the first stop token."""
    is_stop_RT = torch.isin(tokens_RT, torch.tensor(list(stop_tokens), device=tokens_RT.device))
    stops_before_RT = is_stop_RT.long().cumsum(1) - is_stop_RT.long()
    valid_RT = stops_before_RT == 0
    tokens_RT = tokens_RT.masked_fill(~valid_RT, tokenizer.pad_token_id)
    return Rollout(tokens_RT, valid_RT, decode_rows(tokens_RT, valid_RT, tokenizer), samples)


def decode_rows(tokens_RT: torch.Tensor, valid_RT: torch.Tensor, tokenizer: Any) -> list[str]:
    """Decodes token rows to captions without special tokens."""
    rows = [row[valid].tolist() for row, valid in zip(tokens_RT.cpu(), valid_RT.cpu(), strict=True)]
    return [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]
