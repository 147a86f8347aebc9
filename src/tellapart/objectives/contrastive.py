"""Contrastive training of a scorer with CLIP's symmetric loss, so that users can train their own retrievers."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field

from tellapart.models import collectives, ranks
from tellapart.models.protocols import Tokenizer
from tellapart.objectives.base import ObjectiveOptions, Supervised, objective
from tellapart.rewards.run_parts import RunParts
from tellapart.scorers.base import Scorer
from tellapart.types import Batch, Loss, StepContext
from tellapart.utils.rng import ItemSeeds


class Contrastive(Supervised[Scorer]):
    """Symmetric cross-entropy over the B×B pairs of pictures and texts (Radford et al. 2021).

    With several captions per picture, the loss is averaged over captions, and each caption is compared only with
    captions of other pictures. ``word_dropout``: the fraction of words to hide from the scorer in each step, to prevent
    memorization. The scale is capped at 100, as in CLIP.
    """

    @objective(
        "contrastive", help="Trains a scorer with CLIP's symmetric cross-entropy.", direction="lower", trains="scorer"
    )
    class Config(ObjectiveOptions):
        """Contrastive training of a scorer."""

        kind: Literal["contrastive"] = "contrastive"
        word_dropout: float = Field(0.0, ge=0, lt=1)

        def build(self, parts: RunParts) -> Contrastive:
            return Contrastive(self.word_dropout)

    def __init__(self, word_dropout: float = 0.0) -> None:
        self.word_dropout = word_dropout

    def step(self, learner: Scorer, batch: Batch, context: StepContext) -> None:
        """Runs a contrastive step on the whole batch, because the loss compares all pairs.

        Each rank computes the gradients for its own pictures and texts.
        """
        with context.autocast():
            loss = self(learner, batch)
        context.backward(loss if ranks.is_main() else Loss(loss.value - loss.value.detach()))

    def __call__(self, learner: Scorer, batch: Batch) -> Loss:
        mine = batch[ranks.share(len(batch.rows_B))]
        assert mine.tokens_RT is not None and mine.valid_RT is not None
        tokens_RT, valid_RT = self.drop_words(mine.tokens_RT, mine.valid_RT, learner.tokenizer, mine.seeds)
        images_BD = collectives.gather_rows(learner.image_features(mine.visual))
        texts_RD = collectives.gather_rows(learner.row_features(tokens_RT, valid_RT))
        log_scale = learner.model.logit_scale
        with torch.no_grad():
            log_scale.clamp_(max=math.log(100.0))
        # All ranks compute the whole loss, so only the main rank may contribute the gradient of the scale.
        scale = log_scale.exp() if ranks.is_main() else log_scale.detach().exp()
        match_RB = scale * texts_RD @ images_BD.T
        match_SBB = match_RB.unflatten(0, (len(images_BD), -1)).transpose(0, 1)
        loss = torch.stack([symmetric_loss(match_BB) for match_BB in match_SBB]).mean()
        target_B = torch.arange(len(images_BD), device=match_RB.device)
        accuracy = (match_SBB.argmax(dim=2) == target_B).float().mean()
        return Loss(loss, {"accuracy": 100 * float(accuracy), "scale": float(log_scale.detach().exp())})

    def drop_words(
        self, tokens_RT: torch.Tensor, valid_RT: torch.Tensor, tokenizer: Tokenizer, seeds: ItemSeeds | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hides each non-special token with probability ``word_dropout``. Returns tokens_RT and valid_RT.

        Replaces hidden tokens with the mask token, or drops them if the tokenizer has no mask token.
        """
        if not self.word_dropout:
            return tokens_RT, valid_RT
        special = torch.tensor(tokenizer.all_special_ids, device=tokens_RT.device)
        R, T = tokens_RT.shape
        uniform_RT = torch.rand(R, T) if seeds is None else seeds.uniform("word_dropout", T, R // len(seeds))
        hidden_RT = (uniform_RT.to(tokens_RT.device) < self.word_dropout) & ~torch.isin(tokens_RT, special)
        if (hides := mask_token_id(tokenizer)) is not None:
            return tokens_RT.masked_fill(hidden_RT, hides), valid_RT
        return drop_tokens(tokens_RT, valid_RT, hidden_RT & valid_RT, tokenizer)


def mask_token_id(tokenizer: Tokenizer) -> int | None:
    """Returns the id of the unknown or mask token, which replaces hidden words.

    Returns None if neither token has an id of its own. CLIP's tokenizer, for example, uses the end token as its unknown
    token, which would end the text at the hidden word.
    """
    taken = {getattr(tokenizer, f"{role}_token_id", None) for role in ("eos", "bos", "pad", "sep", "cls")}
    for role in ("unk", "mask"):
        token = getattr(tokenizer, f"{role}_token_id", None)
        if token is not None and token not in taken:
            return int(token)
    return None


def drop_tokens(
    tokens_RT: torch.Tensor, valid_RT: torch.Tensor, hidden_RT: torch.Tensor, tokenizer: Tokenizer
) -> tuple[torch.Tensor, torch.Tensor]:
    """Removes the hidden tokens from each row, keeping the order, and pads on the tokenizer's padding side."""
    left = getattr(tokenizer, "padding_side", "right") == "left"
    kept_RT = valid_RT & ~hidden_RT
    order_RT = torch.argsort((kept_RT if left else ~kept_RT).int(), dim=1, stable=True)
    tokens_RT, kept_RT = tokens_RT.gather(1, order_RT), kept_RT.gather(1, order_RT)
    return tokens_RT.masked_fill(~kept_RT, tokenizer.pad_token_id or 0), kept_RT


def symmetric_loss(match_BB: torch.Tensor) -> torch.Tensor:
    """Averages the text-to-picture and picture-to-text cross-entropies, in nats; the targets are on the diagonal."""
    target_B = torch.arange(len(match_BB), device=match_BB.device)
    return (F.cross_entropy(match_BB, target_B) + F.cross_entropy(match_BB.T, target_B)) / 2
