"""What a model reads before a caption: its prompt, with a place for every token of the picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from tellapart.captioners.layouts import Layout, image_token, padded_left, placeholders, prompt_text
from tellapart.captioners.tiles import TEXT, Tiles
from tellapart.errors import TellapartError

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
        tiles: Tiles | None = None,
    ) -> None:
        self.config, self.processor, self.layout, self.text = config, processor, layout, text
        self.tokenizer: Any = processor.tokenizer
        self.accepted, self.blank, self.places, self.tiles = accepted, blank, placeholders(config), tiles

    @property
    def written(self) -> str:
        """The prompt as the processor is given it."""
        return prompt_text(self.layout, self.text, self.processor, image_token(self.processor, self.config))

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
        text = self.written
        begun = {"add_special_tokens": False} if text.startswith(self.tokenizer.bos_token or "\0") else {}
        read = self.processor(images=[self.blank()], text=[text], return_tensors="pt", **begun)
        return {name: x for name, x in read.items() if name in self.accepted and name != "pixel_values"}

    @cached_property
    def blank_ids(self) -> list[int]:
        """The ids in `of_blank` that stand for the blank picture."""
        ids: list[int] = self.of_blank["input_ids"][0].tolist()
        if self.tiles is None:
            return [i for i in ids if i == self.places[0]]
        read = self.tiles.read(self.blank())
        own: list[int] = read["input_ids"][0].tolist()
        same = all(torch.equal(read[name], x) for name, x in self.of_blank.items() if name not in TEXT)
        if not same or not any(ids[at : at + len(own)] == own for at in range(len(ids))):
            raise TellapartError(
                f"a {self.config.model_type} model reads a picture in another way with its prompt than alone; expected "
                "a family of docs/captioners.md, or write a captioner of your own around it"
            )
        return own

    def with_picture(self, picture: Sequence[int]) -> list[int]:
        """The prompt's ids with the ids ``picture`` in the blank picture's place."""
        ids, own = self.of_blank["input_ids"][0].tolist(), self.blank_ids
        at = next(at for at in range(len(ids)) if ids[at : at + len(own)] == own)
        return [*ids[:at], *picture, *ids[at + len(own) :]]

    def rows(self, pictures: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
        """The prompt for R ``pictures``, given by their ids, aligned at the right."""
        rows = [self.with_picture(picture) for picture in pictures]
        ids_RP = padded_left(rows, self.tokenizer.pad_token_id)
        inputs = {"input_ids": ids_RP, "attention_mask": padded_left([[1] * len(row) for row in rows], 0)}
        kinds = {name: (ids_RP == self.places[0]).int() for name in TEXT[2:] if name in self.of_blank}
        return {name: x.to(device) for name, x in (inputs | kinds).items()}
