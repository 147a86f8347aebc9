"""Drop-in replacements for other metric libraries: change one import, and only SPICE will still need Java."""
