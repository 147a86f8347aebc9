"""Times pycocoevalcap in a separate process, on files with one caption per line and references separated by tabs.

Run it as a script (``python run_pycocoevalcap.py METRIC CAPTIONS REFERENCES``), so that tellapart is not imported.
Prints one line of JSON on stdout: the seconds to compute the metric, and its scores. Redirects the output of
pycocoevalcap to stderr.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

BENCHMARKS = ("cider", "meteor", "all")


def main(metric: str, captions: str, references: str) -> dict[str, float | list[float]]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    with open(captions, encoding="utf-8") as file:  # noqa: PTH123
        res = {n: [{"caption": line}] for n, line in enumerate(file.read().removesuffix("\n").split("\n"))}
    with open(references, encoding="utf-8") as file:  # noqa: PTH123
        lines = file.read().removesuffix("\n").split("\n")
    gts = {n: [{"caption": text} for text in line.split("\t")] for n, line in enumerate(lines)}
    start = time.perf_counter()
    gts, res = PTBTokenizer().tokenize(gts), PTBTokenizer().tokenize(res)
    if metric == "cider":
        scores = [Cider().compute_score(gts, res)[0]]
    elif metric == "meteor":
        start = time.perf_counter()  # times only the jar, including its start
        scores = [Meteor().compute_score(gts, res)[0]]
    else:
        scorers = (Bleu(4), Meteor(), Rouge(), Cider())
        bleu, *others = [scorer.compute_score(gts, res)[0] for scorer in scorers]
        scores = [*bleu, *others]
    return {"seconds": time.perf_counter() - start, "scores": [float(score) for score in scores]}


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in BENCHMARKS:
        sys.exit(f"expected {'|'.join(BENCHMARKS)} CAPTIONS REFERENCES")
    with contextlib.redirect_stdout(sys.stderr):
        result = main(*sys.argv[1:])
    print(json.dumps(result))
