"""Captioners: from pictures to text."""

from tellapart.captioners.base import CAPTIONERS, Captioner, CaptionerEntry, generate_captions, load_captioner

__all__ = ["CAPTIONERS", "Captioner", "CaptionerEntry", "generate_captions", "load_captioner"]
