"""Evaluation: computes metrics of captions with intervals, paired differences and signatures.

`evaluate` runs one evaluation. `context` holds the inputs and cached results; `metrics` holds the metrics that need
more than texts. `retrieval` ranks pictures by their captions, `comparison` compares systems, `facts` verifies the
claims of captions, and `judges` queries LLM judges on a server.
"""
