"""The processor of a vision-language model for TRL's ``processing_class``."""

from __future__ import annotations

from typing import Any

import transformers

from tellapart.captioners.processors import whole_processor


def processing_class(name: str) -> Any:
    """Loads a vision-language model's processor for TRL's ``processing_class``, without video support.

    In transformers, the processors of Qwen2-VL and related models also load a video processor, which requires
    torchvision.
    """

    return whole_processor(name, transformers.AutoConfig.from_pretrained(name, trust_remote_code=False))
