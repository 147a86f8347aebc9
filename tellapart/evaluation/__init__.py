"""Evaluation: captions to numbers with intervals, paired differences and signatures.

`evaluate` runs one evaluation, `registry` lists every metric once, `context` holds what a metric may ask for,
`retrieval` and `candidate_sets` rank pictures by their captions, `comparison` puts systems side by side.
"""
