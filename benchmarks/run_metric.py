"""Times one of our metrics in a separate process: ``benchmarks.run_metric METRIC CAPTIONS REFERENCES``.

In a new process, nothing is cached. Prints one line of JSON: the seconds to compute the metric from text, and its
scores.
"""

from __future__ import annotations

import json
import sys
import time


def main(metric: str, captions_file: str, references_file: str) -> dict[str, float | list[float]]:
    """Times ``tellapart.metrics.METRIC`` on files with one caption per line, and references separated by tabs."""
    from tellapart import metrics
    from tellapart.data.caption_files import read_caption_file, read_reference_file

    captions = [text for (text,) in read_caption_file(captions_file).texts.values()]
    references = list(read_reference_file(references_file).texts.values())
    function = getattr(metrics, metric)
    start = time.perf_counter()
    score = float(function(captions, references)[0])
    return {"seconds": time.perf_counter() - start, "scores": [score]}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
