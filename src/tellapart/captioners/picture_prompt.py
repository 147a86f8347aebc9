"""What a model reads before a caption: its prompt, with a place for every token of the picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from tellapart.captioners.layouts import Layout, padded_left, placeholders, prompt_text

if TYPE_CHECKING:
    from PIL import Image


class PicturePrompt:
    """The prompt ``text`` (None: the layout's own) of a model, as its ``processor`` of pictures and text writes it.

    ``accepted``: the names of inputs that the model takes. ``blank`` makes a picture without content. ``places`` are
    the ids of tokens that stand for a picture's; they are never part of a caption.
    """

    def __init__(
        self,
        config: Any,
        processor: Any,
        layout: Layout,
        text: str | None,
        accepted: Collection[str],
        blank: Callable[[], Image.Image],
    ) -> None:
        self.config, self.processor, self.layout, self.text = config, processor, layout, text
        self.tokenizer: Any = processor.tokenizer
        self.accepted, self.blank, self.places = accepted, blank, placeholders(config)

    @cached_property
    def of_blank(self) -> dict[str, torch.Tensor]:
        """What the model reads of one blank picture and the prompt, but for the pixels."""
        if self.config.model_type == "vision-encoder-decoder":
            return {}
        if self.config.model_type == "git":  # its tokenizer would end the text before the caption
            ids = self.tokenizer(self.text or "", add_special_tokens=False)["input_ids"]
            ids = torch.tensor([[self.tokenizer.cls_token_id, *ids]])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if hasattr(self.processor, "num_query_tokens"):
            self.processor.num_query_tokens = self.config.num_query_tokens
        image = self.tokenizer.convert_ids_to_tokens(self.places[0]) if self.places else ""
        text = prompt_text(self.layout, self.text, self.processor, image)
        begun = {"add_special_tokens": False} if text.startswith(self.tokenizer.bos_token or "\0") else {}
        read = self.processor(images=[self.blank()], text=[text], return_tensors="pt", **begun)
        return {name: x for name, x in read.items() if name in self.accepted and name != "pixel_values"}

    @property
    def blank_places(self) -> int:
        """How many places of the prompt the blank picture takes."""
        return int((self.of_blank["input_ids"] == self.places[0]).sum())

    def with_places(self, count: int) -> list[int]:
        """The prompt's ids with ``count`` places for a picture's tokens."""
        ids = self.of_blank["input_ids"][0].tolist()
        at = ids.index(self.places[0])
        return [*ids[:at], *[self.places[0]] * count, *(i for i in ids[at:] if i != self.places[0])]

    def rows(self, counts: Sequence[int], device: torch.device) -> dict[str, torch.Tensor]:
        """The prompt for R pictures that take so many places each, aligned at the right."""
        rows = [self.with_places(count) for count in counts]
        return {
            "input_ids": padded_left(rows, self.tokenizer.pad_token_id).to(device),
            "attention_mask": padded_left([[1] * len(row) for row in rows], 0).to(device),
        }
