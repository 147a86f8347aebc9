"""Captioners: from pictures to text."""

from tellapart.captioners.base import Captioner, write_captions
from tellapart.captioners.load import load_captioner

__all__ = ["Captioner", "load_captioner", "write_captions"]
