"""One size of ``tellapart bench growth``, in a process of its own: prints its seconds as JSON.

python -m tellapart.bench.growth_work eval 100000
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable


def measure_eval(count: int) -> float:
    """Seconds of ``evaluate``: two systems' captions, R@1 in pools of 100, BLEU and CIDEr, intervals and a pair."""
    from tellapart.bench.growth_data import Captions, WordScorer, image_features
    from tellapart.evaluation.evaluate import evaluate

    made = Captions(count)
    scorer = WordScorer(made.words)
    ids = [str(number) for number in range(count)]
    references = dict(zip(ids, made.references(), strict=True))
    image_ND = image_features(scorer, [texts[0] for texts in references.values()])
    systems = {f"system {which}": dict(zip(ids, made.texts(which), strict=True)) for which in (10, 11)}
    start = time.perf_counter()
    evaluate(
        systems,
        references=references,
        scorer=scorer,
        image_features=image_ND,
        metrics=["recall@1.random100", "bleu", "cider"],
    )
    return time.perf_counter() - start


WORK: dict[str, Callable[[int], float]] = {"eval": measure_eval}

if __name__ == "__main__":
    print(json.dumps({"seconds": WORK[sys.argv[1]](int(sys.argv[2]))}))
