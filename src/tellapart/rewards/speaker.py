"""The likelihoods of captions under a frozen captioner, given their own picture and other pictures in the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tellapart.models import collectives, ranks
from tellapart.models.protocols import CaptionerLike
from tellapart.types import Batch, Rollout

OTHERS = 4  # number of other pictures to compare with if features cannot be averaged
SCORES_AT_ONCE = 1 << 26  # tokens × vocabulary per pass, in float32 values


class Speaker:
    """Computes log-probabilities of captions under a frozen captioner, given their own and other pictures in the batch.

    Each rank scores the captions of its share of the pictures.

    others: the number of other pictures to compare with (at most B − 1). They are spread over the batch to avoid
        neighbours from the same bag. 0 uses the average picture, the mean of the batch's features, instead; this costs
        one extra pass and predicts which words are true almost as well as eight pictures (docs/research). Features of
        different shapes cannot be averaged, so 0 uses four other pictures in that case.
    pixels: whether ``batch.visual`` contains pixels because the vision encoder is trained.
    """

    def __init__(self, start: CaptionerLike, others: int = 0, *, pixels: bool = False) -> None:
        keeps_shapes = getattr(start, "lengths_differ", False)
        self.start, self.others, self.pixels = start, others or (OTHERS if keeps_shapes else 0), pixels

    def log_probs(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        """Computes log_p_ORT, the log-probability of each token given the previous tokens, in nats; 0 for padding.

        The first of the O pictures is the caption's own picture, followed by O − 1 other pictures. Each picture is
        encoded once for all of its captions. Raises ValueError if the batch contains only one picture.
        """
        if len(batch.rows_B) < 2:
            raise ValueError("mutual information compares the pictures in a batch; expected at least 2 pictures, got 1")
        if self.others:
            return self._among_pictures(rollout, batch)
        share = ranks.share(len(batch.rows_B))
        with torch.no_grad():
            visual = self.visual(batch, share)
            everything = collectives.gather_rows(visual) if self.pixels else batch.visual
            average = everything.mean(0, keepdim=True).expand_as(visual).contiguous()
            each = [collectives.gather_rows(self.score(seen, rollout[share])) for seen in (visual, average)]
        return torch.stack(each)

    def own_log_probs(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        """Computes log_p_RT, the log-probability of each token given the caption's picture, in nats; 0 for padding."""
        share = ranks.share(len(batch.rows_B))
        with torch.no_grad():
            return collectives.gather_rows(self.score(self.visual(batch, share), rollout[share]))

    def visual(self, batch: Batch, part: slice) -> torch.Tensor:
        """Returns the initial model's input for these pictures."""
        return self.start.encode(batch[part].visual) if self.pixels else batch.visual[part]

    def score(self, visual: torch.Tensor, rollout: Rollout) -> torch.Tensor:
        """Computes log_p_RT, the log-probability of each token given these B pictures, in nats; 0 for padding.

        Works in chunks that fit into memory.
        """
        at_once = self._at_once(rollout.samples * rollout.tokens_RT.shape[1])
        scored = []
        for first in range(0, len(visual), at_once):
            part = rollout[first : min(first + at_once, len(visual))]
            scored.append(self._score(visual[first : first + at_once], part.tokens_RT, part.valid_RT))
        return torch.cat(scored)

    def _at_once(self, tokens: int) -> int:
        """Returns the number of pictures per pass if each picture has ``tokens`` tokens."""
        return max(1, SCORES_AT_ONCE // (tokens * self._vocabulary))

    def _among_pictures(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        B, S = len(batch.rows_B), rollout.samples
        offsets = self._offsets(B)
        T = rollout.tokens_RT.shape[1]
        tokens_BOST, valid_BOST = (
            torch.stack([rows_RT.view(B, S, T).roll(offset, 0) for offset in offsets], dim=1)
            for rows_RT in (rollout.tokens_RT, rollout.valid_RT)
        )
        log_p_BOST = torch.zeros(tokens_BOST.shape, device=rollout.tokens_RT.device)
        at_once = self._at_once(len(offsets) * S * T)
        share = ranks.share(B)
        with torch.no_grad():
            for first in range(share.start, share.stop, at_once):
                part = slice(first, min(first + at_once, share.stop))
                rows = tokens_BOST[part].flatten(0, 2), valid_BOST[part].flatten(0, 2)
                log_p_BOST[part] = self._score(self.visual(batch, part), *rows).view(tokens_BOST[part].shape)
        log_p_BOST = collectives.gather_rows(log_p_BOST[share])
        own_first = [log_p_BOST[:, k].roll(-offset, 0) for k, offset in enumerate(offsets)]
        return torch.stack(own_first).reshape(len(offsets), B * S, T)

    def _offsets(self, B: int) -> list[int]:
        count = min(self.others, B - 1)
        return [B // (count + 1) * k for k in range(count + 1)]

    @property
    def _vocabulary(self) -> int:
        head = self.start.head()
        return len(self.start.tokenizer) if head is None else len(head[0])

    def _score(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        states = self.start.hidden(visual, tokens_RT, valid_RT)[valid_RT]  # skip padding
        head = self.start.head()
        scores_NV = (states if head is None else F.linear(states, *head)).float()
        log_p_RT = scores_NV.new_zeros(tokens_RT.shape)
        log_p_RT[valid_RT] = scores_NV.gather(1, tokens_RT[valid_RT][:, None])[:, 0] - scores_NV.logsumexp(1)
        return log_p_RT
