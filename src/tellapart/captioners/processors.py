"""Loads transformers' processors for pictures and text, without video support."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import transformers
from transformers.models.auto import processing_auto

from tellapart.models.saved import load_processor, load_tokenizer


def whole_processor(where: str, config: Any) -> Any:
    """Loads the processor for pictures and text from a folder or hub name.

    Omits video processors, because they need torchvision. If a family has no combined processor, pairs the tokenizer
    with the image processor. Raises transformers' errors if files are missing.
    """
    pictures = load_processor(where)
    if type(config) not in processing_auto.PROCESSOR_MAPPING:
        return Pair(image_processor=pictures, tokenizer=load_tokenizer(where))
    family: Any = processing_auto.PROCESSOR_MAPPING[type(config)]
    whole = without_videos(family).from_pretrained(where, trust_remote_code=False)
    whole.image_processor = pictures
    return whole


class Pair(SimpleNamespace):
    """A tokenizer and an image processor for families without a combined processor in transformers."""

    def save_pretrained(self, folder: Any) -> None:
        for part in (self.tokenizer, self.image_processor):
            part.save_pretrained(folder)


def without_videos(family: Any) -> Any:
    """Returns a processor class with the same name but without video support."""
    whole = family.get_attributes()
    if "video_processor" not in whole:
        return family
    kept = [name for name in whole if name != "video_processor"]
    module = vars(sys.modules[family.__module__])
    if module.get("num2words", True) is None:  # SmolVLM needs this package only to spell out the lengths of videos
        module["num2words"] = str

    def arguments(cls: Any, *names: Any, **settings: Any) -> list[Any]:
        found: list[Any] = family._get_arguments_from_pretrained.__func__(cls, *names, **settings)
        found.insert(whole.index("video_processor"), None)
        return found

    def made(self: Any, *parts: Any, **named: Any) -> None:
        named |= dict(zip(whole, parts, strict=False))
        named.pop("video_processor", None)
        transformers.ProcessorMixin.__init__(self, **named)

    base = type("ProcessorWithoutVideos", (transformers.ProcessorMixin,), {"__init__": made})
    members = {
        "get_attributes": classmethod(lambda cls: kept),
        "_get_arguments_from_pretrained": classmethod(arguments),
        "video_processor": SimpleNamespace(num_frames=None, fps=None),  # SmolVLM's chat template reads these attributes
    }
    return type(family.__name__, (family, base), members)
