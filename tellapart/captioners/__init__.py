"""Captioners: from pictures to text."""

from tellapart.captioners.base import Captioner, generate_captions
from tellapart.captioners.load import load_captioner

__all__ = ["Captioner", "generate_captions", "load_captioner"]
