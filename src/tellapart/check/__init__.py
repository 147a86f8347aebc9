"""Finds defects in captions and pictures, by rules and by models."""
