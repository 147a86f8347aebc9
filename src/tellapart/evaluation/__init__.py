"""Evaluation: computes caption metrics with intervals, paired differences and signatures.

`evaluate` runs one evaluation on `eval_inputs`; `context` holds what its metrics share, `needs` what they require, and
`metrics` the metrics that need more than texts. `retrieval` ranks pictures by their captions, `comparison` compares
systems, `facts` verifies the claims of captions, and `judges` queries LLM judges on a server.
"""
