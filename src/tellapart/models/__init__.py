"""Code shared by captioners and scorers: model names, decoding settings, tokenizers, and small vision encoders."""
