"""Drop-in replacements for other metric libraries: change one import, and only SPICE still needs Java."""
