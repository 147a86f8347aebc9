"""Captioners: generate text from pictures."""

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.generate import generate_captions
from tellapart.captioners.load import CAPTIONERS, CaptionerEntry, load_captioner

__all__ = ["CAPTIONERS", "Captioner", "CaptionerEntry", "generate_captions", "load_captioner"]
