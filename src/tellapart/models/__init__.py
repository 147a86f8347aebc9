"""Code shared by captioners and scorers: model names, decoding settings, tokenizers, and the small vision tower."""
