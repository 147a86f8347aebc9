"""English: content words, phrases and claims of a caption, and captions built from a subset of them."""
