"""The faithfulness reward for TRL: pointwise mutual information of caption and picture under a frozen captioner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import accelerate
import torch

from tellapart.captioners import load_captioner
from tellapart.captioners.captioner import Captioner
from tellapart.data.pictures import load_rgb
from tellapart.errors import UsageError
from tellapart.integrations.trl.ranks import as_numbers, gathered, picture_key
from tellapart.integrations.trl.rows import Completion, column, text_of
from tellapart.rewards.evidence import mutual_information
from tellapart.rewards.speaker import Speaker


@dataclass(eq=False)
class _MutualInformation:
    """Pointwise mutual information of caption and picture under a frozen captioner, in nats (the ``pmi`` reward).

    Measures how much likelier the captioner finds the caption given its picture than given the average picture in the
    batch (over all ranks if ``gather`` is set). The reward may be negative; claims that are not true of the picture
    lower it.
    captioner: a captioner, or a name that `tellapart.captioners.load_captioner` accepts. Each picture counts once in
        the average. The reward abstains (returns None) if all rows in the batch have the same picture. Raises
        `UsageError` in the first step if the data set lacks the column, or if the pictures' features differ in shape.
    """

    captioner: str | Captioner
    _: KW_ONLY
    gather: bool = True
    image_column: str = "image"
    __name__ = "pmi"  # the name in TRL's logs

    @torch.no_grad()
    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        captioner = self._loaded()
        pictures = [load_rgb(value) for value in column(columns, self.image_column, "each row's picture")]
        keys = [picture_key(picture) for picture in pictures]
        once = dict(zip(keys, pictures, strict=True))
        visual = captioner.encode(captioner.pixels(list(once.values())))
        place = {key: row for row, key in enumerate(once)}
        visual_of_keys = visual[torch.tensor([place[key] for key in keys], device=visual.device)]
        average, several = self._average(list(once), visual, captioner)
        if not several:
            return [None] * len(keys)
        rollout = captioner.rollout_of([text_of(completion) for completion in completions])
        speaker = Speaker(captioner)
        each = torch.stack(
            [speaker.score(seen, rollout) for seen in (visual_of_keys, average.expand_as(visual_of_keys).contiguous())]
        )
        return [float(value) for value in mutual_information(each.sum(2))]

    def _loaded(self) -> Captioner:
        """Loads the captioner. This happens in the first step, because the rank's device is not known earlier."""
        if isinstance(self.captioner, str):
            self.captioner = load_captioner(self.captioner, accelerate.PartialState().device, "fp32")
            self.captioner.model.requires_grad_(False).eval()
        return self.captioner

    def _average(self, keys: Sequence[bytes], visual: torch.Tensor, captioner: Captioner) -> tuple[torch.Tensor, bool]:
        """Returns the mean features, 1×…, over the batch's distinct pictures, and whether there is more than one."""
        key_PK, flat_PD = as_numbers(keys).to(visual.device), visual.flatten(1).float()
        if self.gather:
            key_PK, flat_PD = gathered(key_PK), gathered(flat_PD)
        key_NK, row_P = key_PK.unique(dim=0, return_inverse=True)
        flat_ND = flat_PD.new_empty(len(key_NK), flat_PD.shape[1])
        flat_ND[row_P] = flat_PD
        if not captioner.same_shapes(flat_ND.view(-1, *visual.shape[1:])):
            raise UsageError(
                f"pmi: the features that {captioner.name} computes differ in shape and cannot be averaged; resize the "
                "pictures to a common size"
            )
        return flat_ND.mean(0).view(1, *visual.shape[1:]).to(visual), len(key_NK) > 1


pmi = _MutualInformation
