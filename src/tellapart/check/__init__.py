"""Finds defects in captions and pictures, by rules and by models. `evaluation` and higher layers may import it."""
