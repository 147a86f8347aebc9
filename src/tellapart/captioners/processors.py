"""The whole processor of a vision-language model, pictures through PIL and without what videos would need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def whole_processor(where: str, config: Any) -> Any:
    """A folder's (or hub name's) processor of pictures and text.

    A processor of videos needs torchvision, which nothing here uses: it is left out. Where a family has no processor
    of its own, tokenizer and picture processor stand in for one. Raises what transformers raises for missing files.
    """
    from transformers import AutoImageProcessor, AutoTokenizer
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    pictures = AutoImageProcessor.from_pretrained(where, backend="pil", trust_remote_code=False)
    if type(config) not in PROCESSOR_MAPPING:
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        return Pair(image_processor=pictures, tokenizer=tokenizer)
    family: Any = PROCESSOR_MAPPING[type(config)]
    whole = without_videos(family).from_pretrained(where, trust_remote_code=False)
    whole.image_processor = pictures
    return whole


class Pair(SimpleNamespace):
    """A tokenizer and a picture processor that no processor of transformers holds together."""

    def save_pretrained(self, folder: Any) -> None:
        for part in (self.tokenizer, self.image_processor):
            part.save_pretrained(folder)


def without_videos(family: Any) -> Any:
    """The class of a processor as it is for pictures alone, by the same name."""
    kept = [name for name in family.get_attributes() if name != "video_processor"]
    if kept == family.get_attributes():
        return family
    return type(family.__name__, (family,), {"get_attributes": classmethod(lambda cls: kept)})
