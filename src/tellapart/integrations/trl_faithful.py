"""Faithfulness as a reward of TRL: what a frozen captioner says of a caption for its picture, against others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tellapart.errors import UsageError
from tellapart.integrations.trl_rows import Completion, as_numbers, column, gathered, one_picture, picture_key, text_of
from tellapart.rewards.speaker import Speaker, mutual_information
from tellapart.types import Rollout

if TYPE_CHECKING:
    from tellapart.captioners.base import Captioner


class MutualInformationReward:
    """Pointwise mutual information of caption and picture under a frozen captioner, in nats (reward ``pmi``).

    How much likelier the captioner finds the caption for its picture than for the average picture of the batch, of all
    ranks where ``gather``; a claim that does not hold for the picture lowers it. captioner: a name that
    `tellapart.captioners.load_captioner` takes, or a captioner. A picture counts once in the average. Captions abstain
    (None) where all rows of the batch have one picture. Raises `UsageError` at the first step where the data set lacks
    the column, or the captioner's pictures have features of several shapes.
    """

    __name__ = "pmi"  # the name in TRL's logs

    def __init__(self, captioner: str | Captioner, *, gather: bool = True, image_column: str = "image") -> None:
        self.captioner, self.gather, self.image_column = captioner, gather, image_column

    @torch.no_grad()
    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        captioner = self._loaded()
        pictures = [one_picture(value) for value in column(columns, self.image_column, "the picture of the row")]
        keys = [picture_key(picture) for picture in pictures]
        once = dict(zip(keys, pictures, strict=True))
        visual = captioner.encode(captioner.pixels(list(once.values())))
        place = {key: row for row, key in enumerate(once)}
        own = visual[torch.tensor([place[key] for key in keys], device=visual.device)]
        average, several = self._average(list(once), visual, captioner)
        if not several:
            return [None] * len(keys)
        tokens_RT, valid_RT = captioner.pad(captioner.tokenize([text_of(completion) for completion in completions]))
        rollout = Rollout(tokens_RT.to(visual.device), valid_RT.to(visual.device), [])
        speaker = Speaker(captioner)
        each = torch.stack([speaker.score(seen, rollout) for seen in (own, average.expand_as(own).contiguous())])
        return [float(value) for value in mutual_information(each.sum(2))]

    def _loaded(self) -> Captioner:
        """The captioner, loaded at the first step: only then is it known which device is this rank's."""
        if isinstance(self.captioner, str):
            from accelerate import PartialState

            from tellapart.captioners import load_captioner

            self.captioner = load_captioner(self.captioner, PartialState().device, "fp32")
            self.captioner.model.requires_grad_(False).eval()
        return self.captioner

    def _average(self, keys: Sequence[bytes], visual: torch.Tensor, captioner: Captioner) -> tuple[torch.Tensor, bool]:
        """The mean features of the batch's pictures, 1×…, and whether there are several.

        Rows of pictures that keep their shapes begin with these: three numbers, which the mean must not mix.
        """
        key_PK, flat_PD = as_numbers(keys).to(visual.device), visual.flatten(1).float()
        if self.gather:
            key_PK, flat_PD = gathered(key_PK), gathered(flat_PD)
        key_NK, row_P = key_PK.unique(dim=0, return_inverse=True)
        flat_ND = flat_PD.new_empty(len(key_NK), flat_PD.shape[1])
        flat_ND[row_P] = flat_PD
        if captioner.lengths_differ and len(flat_ND[:, :3].unique(dim=0)) > 1:
            raise UsageError(
                f"pmi: the pictures of {captioner.name} keep their own shapes, and these have several, which have no "
                "average; resize the pictures to one shape"
            )
        return flat_ND.mean(0).view(1, *visual.shape[1:]).to(visual), len(key_NK) > 1
