"""The reference tools, for tests that hold ours against them: pycocoevalcap, and Java for its tokenizer."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_FOUND = importlib.util.find_spec("pycocoevalcap")
needs_tools = pytest.mark.skipif(
    _FOUND is None or shutil.which("java") is None,
    reason="needs Java and pycocoevalcap: apt-get install default-jre-headless; pip install pycocoevalcap",
)


def tokenize(texts: Sequence[str]) -> list[str]:
    """What pycocoevalcap's ``PTBTokenizer`` makes of texts without line ends, by its own command and list."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PUNCTUATIONS, STANFORD_CORENLP_3_4_1_JAR

    assert _FOUND is not None and _FOUND.submodule_search_locations
    folder = Path(_FOUND.submodule_search_locations[0]) / "tokenizer"
    tool = "edu.stanford.nlp.process.PTBTokenizer"
    done = subprocess.run(
        ["java", "-cp", STANFORD_CORENLP_3_4_1_JAR, tool, "-preserveLines", "-lowerCase"],
        input="\n".join(texts).encode(),
        cwd=folder,
        capture_output=True,
        check=True,
    )
    lines = done.stdout.decode().split("\n")
    lines += [""] * (len(texts) - len(lines))
    return [" ".join(w for w in line.rstrip().split(" ") if w not in PUNCTUATIONS) for line in lines[: len(texts)]]


def scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, tuple[Any, np.ndarray]]:
    """BLEU (1 to 4), ROUGE-L and CIDEr of the reference tool: corpus numbers and values per caption."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    told = iter(tokenize([text for held in references for text in held]))
    gts = {number: [next(told) for _ in held] for number, held in enumerate(references)}
    res = {number: [text] for number, text in enumerate(tokenize(captions))}
    bleu = Bleu(4).compute_score(gts, res, verbose=0)
    return {
        "bleu": (bleu[0], np.array(bleu[1])),
        "rouge_l": Rouge().compute_score(gts, res),
        "cider": Cider().compute_score(gts, res),
    }
