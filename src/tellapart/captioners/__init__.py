"""Captioners generate text from pictures."""

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.generated_captions import generate_captions
from tellapart.captioners.load import load_captioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry

__all__ = ["CAPTIONERS", "Captioner", "CaptionerEntry", "generate_captions", "load_captioner"]
