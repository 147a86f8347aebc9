"""Our way, in a process of its own, so that nothing is remembered: ``python -m tellapart.bench.once METRIC FILE FILE``.

Prints one line of JSON: the seconds of the metric alone, from text, and what it found.
"""

from __future__ import annotations

import json
import sys
import time


def main(metric: str, captions: str, references: str) -> dict[str, object]:
    """Time ``tellapart.metrics.METRIC`` on a caption a line and references between tabs."""
    from tellapart import metrics
    from tellapart.data.caption_files import read_captions, read_references

    said, held = list(read_captions(captions).values()), list(read_references(references).values())
    function = getattr(metrics, metric)
    start = time.perf_counter()
    found = float(function(said, held)[0])
    return {"seconds": time.perf_counter() - start, "found": [found]}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
