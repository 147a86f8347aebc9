"""Evaluation: captions to numbers with intervals, paired differences and signatures.

`evaluate` runs one evaluation, `registry` lists every metric once, `slots` has what a metric reads and gives back,
`context` what else it may ask for; `retrieval` and `candidate_sets` rank pictures by their captions, `comparison` puts
systems side by side. `facts` checks what captions claim, `judges` asks models behind a server.
"""
