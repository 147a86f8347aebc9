"""Texts made of captions for a purpose, alt text and captions for an image generator; `cli` imports it."""
