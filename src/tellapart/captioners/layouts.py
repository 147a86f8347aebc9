"""Where the families of vision-language models keep their parts, and how each of them is asked for a caption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

INSTRUCTION = "Describe this picture in one sentence."


@dataclass(frozen=True)
class Layout:
    """The parts of a family by the paths of their modules.

    ``output``: which of the vision tower's outputs the rest of the model reads; None where the rest reads more than
    one, so that nothing short of the pixels can stand for a picture. ``prompt`` is what it is asked by default,
    ``template`` what surrounds that where the model has no chat template (``{image}`` is the picture's place).
    """

    vision: str
    output: str | None = "last_hidden_state"
    mapper: tuple[str, ...] = ()
    language: tuple[str, ...] = ("model.language_model", "lm_head")
    prompt: str = INSTRUCTION
    template: str = "{image}{prompt}"


QFORMER = ("query_tokens", "qformer", "language_projection")
PROJECTOR = ("model.multi_modal_projector",)
LAYOUTS = {
    "blip-2": Layout("vision_model", mapper=QFORMER, language=("language_model",), prompt="", template="{prompt}"),
    "instructblip": Layout(
        "vision_model",
        mapper=QFORMER,
        language=("language_model",),
        prompt="A short image caption.",  # InstructBLIP, appendix C
        template="{prompt}",
    ),
    "git": Layout(
        "git.image_encoder",
        mapper=("git.visual_projection",),
        language=("git.embeddings", "git.encoder", "output"),
        prompt="",
        template="{prompt}",
    ),
    "paligemma": Layout("model.vision_tower", mapper=PROJECTOR, prompt="caption en"),
    "gemma3": Layout("model.vision_tower", mapper=PROJECTOR),
    "llava": Layout(
        "model.vision_tower", "hidden_states", mapper=PROJECTOR, template="USER: {image}\n{prompt} ASSISTANT:"
    ),
    "llava_next": Layout(
        "model.vision_tower",
        "hidden_states",
        mapper=("model.multi_modal_projector", "model.image_newline"),
        template="USER: {image}\n{prompt} ASSISTANT:",
    ),
    "florence2": Layout(
        "model.vision_tower",
        mapper=PROJECTOR,
        prompt="<CAPTION>",  # its processor writes the picture's token and the question of a task
        template="{prompt}",
    ),
    "qwen2_vl": Layout("model.visual", "pooler_output"),
    "qwen2_5_vl": Layout("model.visual", "pooler_output"),
    "vision-encoder-decoder": Layout(
        "encoder", mapper=("enc_to_dec_proj",), language=("decoder",), prompt="", template="{prompt}"
    ),
}

# Of families without a line above: what their parts are usually called, the first that is there.
VISION = ("model.vision_tower", "model.vision_model", "model.visual", "model.vision_encoder", "vision_model", "encoder")
MAPPERS = (
    "model.multi_modal_projector",
    "model.image_newline",
    "model.connector",
    "model.aligner",
    "model.projector",
    "image_to_text_projection",
)
LANGUAGE = ("model.language_model", "model.text_model", "language_model", "text_model", "decoder")


def layout_of(model: Any) -> Layout:
    """The family's layout; of an unknown family what the names show, with pixels as the picture."""
    layout = LAYOUTS.get(model.config.model_type)
    if layout is None:
        return Layout(
            first(model, VISION),
            None,
            present(model, MAPPERS),
            (*first_of(model, LANGUAGE), *present(model, ("lm_head",))),
        )
    if layout.output == "hidden_states" and not isinstance(model.config.vision_feature_layer, int):
        return Layout(layout.vision, None, layout.mapper, layout.language, layout.prompt, layout.template)
    return layout


def first_of(model: nn.Module, paths: tuple[str, ...]) -> tuple[str, ...]:
    return present(model, paths)[:1]


def first(model: nn.Module, paths: tuple[str, ...]) -> str:
    return next(iter(present(model, paths)), "")


def present(model: nn.Module, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``paths`` that this model has."""
    return tuple(path for path in paths if find_module(model, path) is not None)


def find_module(model: Any, path: str) -> Any:
    for name in path.split("."):
        model = getattr(model, name, None)
    return model


class Group(nn.Module):
    """Modules and parameters from several places of a model, under one roof.

    What replaces one of them here (LoRA does) also replaces it in the model.
    """

    def __init__(self, model: nn.Module, paths: tuple[str, ...]) -> None:
        super().__init__()
        self.homes: dict[str, Any] = {}
        for path in present(model, paths):
            parent, _, name = path.rpartition(".")
            setattr(self, name, find_module(model, path))
            self.homes[name] = (model.get_submodule(parent), name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.__dict__.get("homes", {}):
            home, attribute = self.homes[name]
            setattr(home, attribute, value)


def prompt_text(layout: Layout, prompt: str | None, processor: Any, image: str) -> str:
    """The text before a caption, the picture's token ``image`` in it: by the chat template where there is one."""
    asked = layout.prompt if prompt is None else prompt
    if getattr(processor, "chat_template", None):
        content = [{"type": "image"}, {"type": "text", "text": asked}]
        turns = [{"role": "user", "content": content}]
        return str(processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
    return layout.template.format(image=image, prompt=asked)


def image_token(processor: Any, config: Any) -> str:
    """The token that stands for a picture in a text; empty where there is none."""
    places = placeholders(config)
    return str(processor.tokenizer.convert_ids_to_tokens(places[0])) if places else ""


def picture_marker(layout: Layout, processor: Any, config: Any) -> str | None:
    """What stands for a picture in the text that ``processor`` is given; None where texts name no picture."""
    text = prompt_text(layout, None, processor, image_token(processor, config))
    names = ("image_token", "boi_token")
    usual = [getattr(owner, name, None) for name in names for owner in (processor, processor.tokenizer)]
    return next((str(each) for each in (*usual, image_token(processor, config)) if each and str(each) in text), None)


def placeholders(config: Any) -> list[int]:
    """Ids of the tokens that hold a picture's place: never part of a caption."""
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
    ids = [getattr(config, name, None) for name in names]
    return sorted({int(i) for i in ids if i is not None})


def padded_left(rows: list[list[int]], fill: int) -> torch.Tensor:
    """Rows of ids R×L, each at the right end of its row."""
    width = max(map(len, rows))
    return torch.tensor([[fill] * (width - len(row)) + row for row in rows])
