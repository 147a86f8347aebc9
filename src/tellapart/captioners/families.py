"""Describes model families in transformers: the module paths of their parts, and their prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

INSTRUCTION = "Describe this picture in one sentence."


@dataclass(frozen=True)
class Layout:
    """The module paths of a family's parts, and its prompt.

    ``output``: the output of the vision tower that the rest of the model reads. None if the rest of the model reads
    several outputs, so that pictures can only be represented by their pixels. ``prompt``: the default prompt.
    ``template``: the text around the prompt for models without a chat template, where ``{image}`` marks the picture.
    ``answers``: whether the prompt may be any question. If not, it must be a task name or the beginning of a caption.
    """

    vision: str
    output: str | None = "last_hidden_state"
    mapper: tuple[str, ...] = ()
    language: tuple[str, ...] = ("model.language_model", "lm_head")
    prompt: str = INSTRUCTION
    template: str = "{image}{prompt}"
    answers: bool = False


QFORMER = ("query_tokens", "qformer", "language_projection")
PROJECTOR = ("model.multi_modal_projector",)
LLAVA = Layout(
    "model.vision_tower",
    "hidden_states",
    mapper=PROJECTOR,
    template="USER: {image}\n{prompt} ASSISTANT:",
    answers=True,
)
LAYOUTS = {
    "blip-2": Layout("vision_model", mapper=QFORMER, language=("language_model",), prompt="", template="{prompt}"),
    "instructblip": Layout(
        "vision_model",
        mapper=QFORMER,
        language=("language_model",),
        prompt="A short image caption.",  # InstructBLIP, appendix C
        template="{prompt}",
        answers=True,
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
    "llava": LLAVA,
    "llava_next": replace(LLAVA, mapper=(*PROJECTOR, "model.image_newline")),
    "florence2": Layout(
        "model.vision_tower",
        mapper=PROJECTOR,
        prompt="<CAPTION>",  # its processor adds the picture token and the question for the task
        template="{prompt}",
    ),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "glm4v"), Layout("model.visual", "pooler_output")),
    "aya_vision": Layout("model.vision_tower", "hidden_states", mapper=PROJECTOR),
    **dict.fromkeys(("deepseek_vl", "janus"), Layout("model.vision_model", mapper=("model.aligner",))),
    "vision-encoder-decoder": Layout(
        "encoder", mapper=("enc_to_dec_proj",), language=("decoder",), prompt="", template="{prompt}"
    ),
}

# Common names of the parts in families that are not listed above. The first name that exists is used.
VISION = ("model.vision_tower", "model.vision_model", "model.visual", "model.vision_encoder", "vision_model", "encoder")
MAPPERS = (
    "model.multi_modal_projector",
    "model.image_newline",
    "model.connector",
    "model.aligner",
    "model.projector",
    "model.visual_embeddings_table",
    "model.embed_vision",
    "image_to_text_projection",
)
LANGUAGE = ("model.language_model", "model.text_model", "language_model", "text_model", "decoder")


def layout_of(model: Any) -> Layout:
    """Returns the family's layout. For unknown families, infers it from module names; pictures are then represented by
    their pixels.
    """
    layout = LAYOUTS.get(model.config.model_type)
    if layout is None:
        language = (*present(model, LANGUAGE)[:1], *present(model, ("lm_head",)))
        return Layout(next(iter(present(model, VISION)), ""), None, present(model, MAPPERS), language)
    if layout.output == "hidden_states" and not isinstance(model.config.vision_feature_layer, int):
        return replace(layout, output=None)
    return layout


def present(model: nn.Module, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the ``paths`` that exist in this model."""
    return tuple(path for path in paths if find_module(model, path) is not None)


def find_module(model: Any, path: str) -> Any:
    for name in path.split("."):
        model = getattr(model, name, None)
    return model


class Group(nn.Module):
    """Groups modules and parameters from several places in a model.

    Replacing a module here, as LoRA does, also replaces it in the model.
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
