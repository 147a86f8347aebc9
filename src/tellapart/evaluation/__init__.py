"""Evaluation: computes caption metrics with intervals, paired differences and signatures.

`evaluate` runs one evaluation on the inputs in `eval_inputs`. Metrics share the intermediate results in `context`, and
`needs` lists their requirements; `metrics` contains those that need more than captions and references. `retrieval`
ranks pictures by their captions, `comparison` compares systems, `facts` verifies the claims of captions, and `judges`
queries LLM judges on a server.
"""
