"""Builds prompts for transformers models, with placeholders for a picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image

from tellapart.captioners.families import Layout
from tellapart.captioners.picture_tiles import TEXT, Tiles
from tellapart.errors import TellapartError
from tellapart.models.chat import rendered
from tellapart.utils.documentation import page_url


def prompt_text(layout: Layout, prompt: str | None, processor: Any, image: str) -> str:
    """Returns the text before a caption, including the picture token ``image``.

    If the processor has a chat template, uses it.
    """
    asked = layout.prompt if prompt is None else prompt
    if getattr(processor, "chat_template", None):
        content = [{"type": "image"}, {"type": "text", "text": asked}]
        turns = [{"role": "user", "content": content}]
        return str(rendered(processor.tokenizer.name_or_path, processor, turns))
    return layout.template.format(image=image, prompt=asked)


def image_token(processor: Any, config: Any) -> str:
    """Returns the token that represents a picture in text, or "" if there is no such token."""
    places = placeholders(config)
    return str(processor.tokenizer.convert_ids_to_tokens(places[0])) if places else ""


def picture_marker(layout: Layout, processor: Any, config: Any) -> str | None:
    """Returns the marker that represents a picture in the text passed to ``processor``, or None if there is none."""
    text = prompt_text(layout, None, processor, image_token(processor, config))
    names = ("image_token", "boi_token")
    usual = [getattr(owner, name, None) for name in names for owner in (processor, processor.tokenizer)]
    return next((str(each) for each in (*usual, image_token(processor, config)) if each and str(each) in text), None)


def placeholders(config: Any) -> list[int]:
    """Returns the ids of the picture placeholder tokens, starting with the usual one. Captions never contain them."""
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index", "audio_token_id")
    ids = [getattr(config, name, None) for name in names]
    ids += getattr(config, "visual_indicator_token_ids", ())  # Ovis marks the edges of tiles
    return list(dict.fromkeys(int(i) for i in ids if i is not None))


def padded_left(rows: list[list[int]], fill: int) -> torch.Tensor:
    """Pads rows of ids on the left, R×L."""
    width = max(map(len, rows))
    return torch.tensor([[fill] * (width - len(row)) + row for row in rows])


class PicturePrompt:
    """A model's prompt, formatted by its ``processor`` for pictures and text.

    ``text``: the prompt; None: the layout's default prompt. ``accepted``: names of the model's inputs. ``blank``:
    creates a picture without content. ``places``: ids of the picture placeholder tokens, which captions never contain.
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
        """Returns the prompt as passed to the processor."""
        return prompt_text(self.layout, self.text, self.processor, image_token(self.processor, self.config))

    @cached_property
    def of_blank(self) -> dict[str, torch.Tensor]:
        """Returns the model's inputs, except pixels, for one blank picture and the prompt."""
        if self.config.model_type == "vision-encoder-decoder":
            return {}
        if self.config.model_type == "git":  # GIT's tokenizer would add an end token before the caption
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
        """Returns the token ids in `of_blank` that represent the blank picture."""
        ids: list[int] = self.of_blank["input_ids"][0].tolist()
        if self.tiles is None:
            return [i for i in ids if i == self.places[0]]
        read = self.tiles.read(self.blank())
        picture_ids: list[int] = read["input_ids"][0].tolist()
        same = all(torch.equal(read[name], x) for name, x in self.of_blank.items() if name not in TEXT)
        if not same or not any(ids[at : at + len(picture_ids)] == picture_ids for at in range(len(ids))):
            raise TellapartError(
                f"{self.config.model_type} models encode a picture differently with and without a prompt; use a family "
                f"listed in {page_url('captioners.md')}, or write your own captioner around the model"
            )
        return picture_ids

    def with_picture(self, picture: Sequence[int]) -> list[int]:
        """Returns the prompt's token ids with the blank picture's ids replaced by ``picture``."""
        ids, picture_ids = self.of_blank["input_ids"][0].tolist(), self.blank_ids
        at = next(at for at in range(len(ids)) if ids[at : at + len(picture_ids)] == picture_ids)
        return [*ids[:at], *picture, *ids[at + len(picture_ids) :]]

    def rows(self, pictures: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
        """Returns the right-aligned prompts for R ``pictures``, which are given by their token ids."""
        rows = [self.with_picture(picture) for picture in pictures]
        ids_RP = padded_left(rows, self.tokenizer.pad_token_id)
        inputs = {"input_ids": ids_RP, "attention_mask": padded_left([[1] * len(row) for row in rows], 0)}
        kinds = {name: (ids_RP == self.places[0]).int() for name in TEXT[2:] if name in self.of_blank}
        return {name: x.to(device) for name, x in (inputs | kinds).items()}
