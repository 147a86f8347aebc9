"""Drop-in replacements for other metric libraries: change one import, and Java is no longer needed."""
