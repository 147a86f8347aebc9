"""Captioners: from pictures to text."""

from tellapart.captioners.base import Captioner, generate_captions
from tellapart.captioners.load import load_captioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry

__all__ = ["CAPTIONERS", "Captioner", "CaptionerEntry", "generate_captions", "load_captioner"]
