"""Captions any number of pictures. `caption` runs the whole job; `engine` reads, encodes and captions pictures."""
