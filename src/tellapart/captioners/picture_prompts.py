"""Builds prompts for transformers models (`captioners.transformers.Hf`), with placeholders for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from tellapart.captioners.packed_pictures import TEXT
from tellapart.errors import TellapartError
from tellapart.models.chat_templates import rendered
from tellapart.utils.documentation import page_url


def placeholders(config: Any) -> list[int]:
    """Returns the ids of the picture placeholder tokens, starting with the usual one. Captions never contain them."""
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index", "audio_token_id")
    ids = [getattr(config, name, None) for name in names]
    ids += getattr(config, "visual_indicator_token_ids", ())  # Ovis marks the edges of tiles
    return list(dict.fromkeys(int(i) for i in ids if i is not None))


def image_token(captioner: Any) -> str:
    """Returns the token that represents a picture in text, or "" if there is no such token."""
    return str(captioner.tokenizer.convert_ids_to_tokens(captioner.places[0])) if captioner.places else ""


def prompt_text(captioner: Any, prompt: str | None) -> str:
    """Returns the text before a caption, including the picture token. If the model has a chat template, uses it.

    prompt: None for the family's default prompt.
    """
    layout, processor = captioner.layout, captioner.whole
    asked = layout.prompt if prompt is None else prompt
    if getattr(processor, "chat_template", None):
        content = [{"type": "image"}, {"type": "text", "text": asked}]
        turns = [{"role": "user", "content": content}]
        return str(rendered(processor.tokenizer.name_or_path, processor, turns))
    return str(layout.template.format(image=image_token(captioner), prompt=asked))


def picture_marker(captioner: Any) -> str | None:
    """Returns the marker that represents a picture in the text passed to the processor, or None if there is none."""
    text, owners = prompt_text(captioner, None), (captioner.whole, captioner.tokenizer)
    usual = [getattr(owner, name, None) for name in ("image_token", "boi_token") for owner in owners]
    return next((str(each) for each in (*usual, image_token(captioner)) if each and str(each) in text), None)


class PicturePrompt:
    """A captioner's prompt, formatted by its processor for pictures and text.

    ``text``: the prompt; None: the family's default prompt.
    """

    def __init__(self, captioner: Any, text: str | None) -> None:
        self.captioner, self.text = captioner, text

    @property
    def written(self) -> str:
        """Returns the prompt as passed to the processor."""
        return prompt_text(self.captioner, self.text)

    @cached_property
    def of_blank(self) -> dict[str, torch.Tensor]:
        """Returns the model's inputs, except pixels, for one blank picture and the prompt."""
        config, tokenizer, processor = self.captioner.model.config, self.captioner.tokenizer, self.captioner.whole
        if config.model_type == "vision-encoder-decoder":
            return {}
        if config.model_type == "git":  # GIT's tokenizer would add an end token before the caption
            ids = tokenizer(self.text or "", add_special_tokens=False)["input_ids"]
            ids = torch.tensor([[tokenizer.cls_token_id, *ids]])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if hasattr(processor, "num_query_tokens"):
            processor.num_query_tokens = config.num_query_tokens
        text = self.written
        begun = {"add_special_tokens": False} if text.startswith(tokenizer.bos_token or "\0") else {}
        read = processor(images=[self.captioner.blank()], text=[text], return_tensors="pt", **begun)
        return {name: x for name, x in read.items() if name in self.captioner.accepted and name != "pixel_values"}

    @cached_property
    def around(self) -> tuple[list[int], list[int]]:
        """Returns the prompt's token ids before and after the picture, for models whose pictures are packed.

        Raises `TellapartError` if the processor encodes a picture differently with and without the prompt.
        """
        read = self.captioner.packed.read(self.captioner.blank())
        picture, ids = (each["input_ids"][0].tolist() for each in (read, self.of_blank))
        at = next((at for at in range(len(ids)) if ids[at : at + len(picture)] == picture), None)
        same = all(torch.equal(read[name], x) for name, x in self.of_blank.items() if name not in TEXT)
        if not same or at is None:
            raise TellapartError(
                f"{self.captioner.model.config.model_type} models encode a picture differently with and without a "
                f"prompt; use a family listed in {page_url('captioners.md')}, or write your own captioner around the "
                "model"
            )
        return ids[:at], ids[at + len(picture) :]

    def with_picture(self, picture: Sequence[int]) -> list[int]:
        """Returns the prompt's token ids for a ``picture``, which is given by its token ids."""
        before, after = self.around
        return [*before, *picture, *after]

    def rows(self, pictures: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Returns the right-aligned prompts for R ``pictures``, which are given by their token ids."""
        pad = self.captioner.tokenizer.pad_token_id
        rows = [torch.tensor(self.with_picture(picture)) for picture in pictures]
        ids_RP = pad_sequence(rows, batch_first=True, padding_value=pad, padding_side="left")
        ones = [torch.ones_like(row) for row in rows]
        inputs = {"input_ids": ids_RP, "attention_mask": pad_sequence(ones, batch_first=True, padding_side="left")}
        kinds_RP = (ids_RP == self.captioner.places[0]).int()
        inputs |= {name: kinds_RP for name in TEXT[2:] if name in self.of_blank}
        return {name: x.to(self.captioner.device) for name, x in inputs.items()}
