"""English without a tagger: the content words of a caption, its phrases, and captions made of some of them."""
