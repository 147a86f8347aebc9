"""Human judgements of captions, read from published layouts, and the agreement of metrics with them.

`agreement_in_file` is ``tellapart study judges``. `layouts` reads `judgements`; `agreement` measures metrics on them.
"""
