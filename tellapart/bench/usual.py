"""The usual way, in a process of its own: pycocoevalcap on files with a caption a line and references between tabs.

Run as a script (``python usual.py WORK CAPTIONS REFERENCES``), so that nothing of ours is loaded. Prints one line of
JSON on the real stdout: the seconds of the work alone, and what it found.
"""

import contextlib
import json
import sys
import time

WORKS = ("cider", "meteor", "all")


def main(work, captions, references):  # type: ignore[no-untyped-def]
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
    if work == "cider":
        found = [Cider().compute_score(gts, res)[0]]
    elif work == "meteor":
        start = time.perf_counter()  # the jar alone, from its start
        found = [Meteor().compute_score(gts, res)[0]]
    else:
        scorers = (Bleu(4), Meteor(), Rouge(), Cider())
        scores = [scorer.compute_score(gts, res)[0] for scorer in scorers]
        found = [*scores[0], *scores[1:]]
    return {"seconds": time.perf_counter() - start, "found": [float(value) for value in found]}


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in WORKS:
        sys.exit(f"expected {'|'.join(WORKS)} CAPTIONS REFERENCES")
    with contextlib.redirect_stdout(sys.stderr):
        result = main(*sys.argv[1:])
    print(json.dumps(result))
