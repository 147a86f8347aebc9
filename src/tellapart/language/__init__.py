"""English: the content words of a caption, its phrases and claims, and captions made of some of them."""
