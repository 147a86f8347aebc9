"""The prompt of a model of transformers, with places for a picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image

from tellapart.captioners.families import Layout
from tellapart.captioners.packed_pictures import TEXT, Tiles
from tellapart.errors import TellapartError
from tellapart.models.chat import rendered


def prompt_text(layout: Layout, prompt: str | None, processor: Any, image: str) -> str:
    """The text before a caption, the picture's token ``image`` in it: by the chat template where there is one."""
    asked = layout.prompt if prompt is None else prompt
    if getattr(processor, "chat_template", None):
        content = [{"type": "image"}, {"type": "text", "text": asked}]
        turns = [{"role": "user", "content": content}]
        return str(rendered(processor.tokenizer.name_or_path, processor, turns))
    return layout.template.format(image=image, prompt=asked)


def image_token(processor: Any, config: Any) -> str:
    """The token that stands for a picture in a text; empty where there is none."""
    places = placeholders(config)
    return str(processor.tokenizer.convert_ids_to_tokens(places[0])) if places else ""


def picture_marker(layout: Layout, processor: Any, config: Any) -> str | None:
    """Returns what stands for a picture in the text that ``processor`` is given; None where texts name no picture."""
    text = prompt_text(layout, None, processor, image_token(processor, config))
    names = ("image_token", "boi_token")
    usual = [getattr(owner, name, None) for name in names for owner in (processor, processor.tokenizer)]
    return next((str(each) for each in (*usual, image_token(processor, config)) if each and str(each) in text), None)


def placeholders(config: Any) -> list[int]:
    """Ids of the tokens in whose place the model reads a picture, the usual one first: never part of a caption."""
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index", "audio_token_id")
    ids = [getattr(config, name, None) for name in names]
    ids += getattr(config, "visual_indicator_token_ids", ())  # Ovis' marks of the edges of tiles
    return list(dict.fromkeys(int(i) for i in ids if i is not None))


def padded_left(rows: list[list[int]], fill: int) -> torch.Tensor:
    """Rows of ids R×L, each at the right end of its row."""
    width = max(map(len, rows))
    return torch.tensor([[fill] * (width - len(row)) + row for row in rows])


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
        """Returns what the model reads of one blank picture and the prompt, but for the pixels."""
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
        picture_ids: list[int] = read["input_ids"][0].tolist()
        same = all(torch.equal(read[name], x) for name, x in self.of_blank.items() if name not in TEXT)
        if not same or not any(ids[at : at + len(picture_ids)] == picture_ids for at in range(len(ids))):
            raise TellapartError(
                f"a {self.config.model_type} model reads a picture in another way with its prompt than alone; expected "
                "a family of docs/captioners.md, or write a captioner of your own around it"
            )
        return picture_ids

    def with_picture(self, picture: Sequence[int]) -> list[int]:
        """The prompt's ids with the ids ``picture`` in the blank picture's place."""
        ids, picture_ids = self.of_blank["input_ids"][0].tolist(), self.blank_ids
        at = next(at for at in range(len(ids)) if ids[at : at + len(picture_ids)] == picture_ids)
        return [*ids[:at], *picture, *ids[at + len(picture_ids) :]]

    def rows(self, pictures: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
        """The prompt for R ``pictures``, given by their ids, aligned at the right."""
        rows = [self.with_picture(picture) for picture in pictures]
        ids_RP = padded_left(rows, self.tokenizer.pad_token_id)
        inputs = {"input_ids": ids_RP, "attention_mask": padded_left([[1] * len(row) for row in rows], 0)}
        kinds = {name: (ids_RP == self.places[0]).int() for name in TEXT[2:] if name in self.of_blank}
        return {name: x.to(device) for name, x in (inputs | kinds).items()}
