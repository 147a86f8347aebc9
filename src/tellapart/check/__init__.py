"""Finds damage in captions and their pictures, by rules and by models. `evaluation` and all above may import it."""
