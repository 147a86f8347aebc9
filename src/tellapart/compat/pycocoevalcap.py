"""Drop-in replacement for pycocoevalcap with the same classes, shapes and values. Only SPICE needs Java.

``from tellapart.compat.pycocoevalcap import Bleu, Meteor, Rouge, Cider, Spice, PTBTokenizer, COCOEvalCap``, or use the
original module paths: ``tellapart.compat.pycocoevalcap.bleu.bleu``, ``….eval``, ``….tokenizer.ptbtokenizer``. As in the
original, ``compute_score`` splits captions only at spaces, so tokenize them with `PTBTokenizer` first.

METEOR reads its tables from the package pycocoevalcap (``pip install 'tellapart[meteor]'``). SPICE runs the Java tool.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from tellapart.errors import TellapartError, UsageError
from tellapart.metrics.bleu_score import ORDERS, bleus_of, stats_of_tokens
from tellapart.metrics.cider import SIGMA, cider_of_tokens
from tellapart.metrics.meteor_score import find_tables, meteor_of_tokens
from tellapart.metrics.ptb import ptb_tokenize
from tellapart.metrics.rouge_score import rouge_of_tokens
from tellapart.metrics.spice_score import find_tool, spice_scores_of_tokens
from tellapart.utils.messages import say

Texts = Mapping[Any, Sequence[str]]


def paired(gts: Texts, res: Texts) -> tuple[list[str], list[list[str]]]:
    """Returns all pictures' captions and references, in the order of ``gts``.

    Raises `UsageError` if ``gts`` and ``res`` contain different pictures, if a picture has no reference, or if a
    picture's value in ``res`` is not a list of exactly one caption.
    """
    if gts.keys() != res.keys():
        odd = next(iter(gts.keys() ^ res.keys()))
        where = "captions" if odd in gts else "references"
        raise UsageError(f"picture {odd!r} has no {where}; expected the same pictures in gts and res")
    for key in gts:
        if not isinstance(res[key], list) or len(res[key]) != 1:
            raise UsageError(f"res[{key!r}] is {res[key]!s:.60}; expected a list with one caption")
        if not isinstance(gts[key], list) or not gts[key]:
            raise UsageError(f"gts[{key!r}] is {gts[key]!s:.60}; expected a list of references")
    return [res[key][0] for key in gts], [list(gts[key]) for key in gts]


def _single_blanks(gts: Texts, res: Texts) -> tuple[list[str], list[list[str]]]:
    captions, references = paired(gts, res)
    return [" ".join(text.split()) for text in captions], [[" ".join(t.split()) for t in texts] for texts in references]


class PTBTokenizer:
    """Tokenizes captions like the COCO tools."""

    def tokenize(self, captions_for_image: Mapping[Any, Sequence[Mapping[str, Any]]]) -> dict[Any, list[str]]:
        """Converts {id: [{"caption": text}, …]} to {id: [text, …]}, with tokens joined by spaces."""
        keys = [key for key, captions in captions_for_image.items() for _ in captions]
        texts = [entry["caption"] for captions in captions_for_image.values() for entry in captions]
        tokens_by_id: dict[Any, list[str]] = {}
        for key, text in zip(keys, ptb_tokenize(texts), strict=True):
            tokens_by_id.setdefault(key, []).append(text)
        return tokens_by_id


class Bleu:
    """Corpus BLEU-1 to BLEU-n (0 to 1), with the closest reference length. Raises `UsageError` unless n is between 1
    and 4.
    """

    def __init__(self, n: int = ORDERS) -> None:
        if not 1 <= n <= ORDERS:
            raise UsageError(f"Bleu({n}) is not supported; expected n from 1 to {ORDERS}")
        self._n = n

    def compute_score(self, gts: Texts, res: Texts, verbose: int = 1) -> tuple[list[float], list[list[float]]]:
        """Returns n corpus scores, and n lists with one score per picture. Prints the counts if ``verbose`` is set."""
        counts_NC = stats_of_tokens(*_single_blanks(gts, res))
        sum_C = counts_NC.sum(0)
        if verbose:
            words, closest, *grams = (int(count) for count in sum_C)
            guess, correct = grams[: self._n], grams[ORDERS : ORDERS + self._n]
            print({"testlen": words, "reflen": closest, "guess": guess, "correct": correct})
            print("ratio:", (words + 1e-15) / (closest + 1e-9))
        return bleus_of(sum_C)[: self._n].tolist(), bleus_of(counts_NC.T)[: self._n].tolist()

    def method(self) -> str:
        """Returns the name that the COCO tools print."""
        return "Bleu"


class Meteor:
    """METEOR 1.5, as computed by COCO's jar."""

    def __init__(self) -> None:
        find_tables()

    def compute_score(self, gts: Texts, res: Texts) -> tuple[float, list[float]]:
        """Returns the corpus score, and a list with one score per picture."""
        captions, references = paired(gts, res)
        captions = [text.replace("|||", "").replace("  ", " ") for text in captions]
        corpus, value_N = meteor_of_tokens(captions, references)
        return corpus, value_N.tolist()

    def method(self) -> str:
        """Returns the name that the COCO tools print."""
        return "METEOR"


class Rouge:
    """ROUGE-L with β = 1.2."""

    def compute_score(self, gts: Texts, res: Texts) -> tuple[float, np.ndarray]:
        """Returns the mean score, and an array with one score per picture."""
        return rouge_of_tokens(*paired(gts, res))

    def method(self) -> str:
        """Returns the name that the COCO tools print."""
        return "Rouge"


class Cider:
    """CIDEr-D, with document frequencies from the given references."""

    def __init__(self, test: None = None, refs: None = None, n: int = ORDERS, sigma: float = SIGMA) -> None:
        if test is not None or refs is not None or (n, sigma) != (ORDERS, SIGMA):
            raise UsageError(f"Cider supports only n={ORDERS} and sigma={SIGMA:g}; use Cider() and compute_score")

    def compute_score(self, gts: Texts, res: Texts) -> tuple[float, np.ndarray]:
        """Returns the mean score, and an array with one score per picture, 0 to 10."""
        return cider_of_tokens(*_single_blanks(gts, res))

    def method(self) -> str:
        """Returns the name that the COCO tools print."""
        return "CIDEr"


class Spice:
    """SPICE, computed by the Java tool. Raises `UsageError` if the tool cannot run, because there is no substitute."""

    def __init__(self) -> None:
        try:
            find_tool()
        except TellapartError as error:
            raise UsageError(
                f"{error}; without Java, use tellapart eval --metrics graph_f, which is not SPICE"
            ) from None

    def compute_score(self, gts: Texts, res: Texts) -> tuple[float, list[dict[str, dict[str, float]]]]:
        """Returns the mean F-score, and each picture's scores by category. Pictures are sorted by id."""
        keys = sorted(gts)
        captions, references = paired({key: gts[key] for key in keys}, res)
        scores = spice_scores_of_tokens(captions, references)
        return float(np.mean([score["All"]["f"] for score in scores])), scores

    def method(self) -> str:
        """Returns the name that the COCO tools print."""
        return "SPICE"


class Annotations(Protocol):
    """The part of `pycocotools.coco.COCO` that `COCOEvalCap` uses."""

    imgToAnns: Mapping[Any, Sequence[Mapping[str, Any]]]

    def getImgIds(self) -> list[Any]:
        """Returns the pictures' ids."""


class COCOEvalCap:
    """Computes all metrics for a COCO results file. Stores the scores in ``eval`` (by metric), ``imgToEval`` and
    ``evalImgs`` (by picture).

    ``coco`` is a `pycocotools.coco.COCO`, and ``cocoRes`` is the result of its ``loadRes``. SPICE is included if its
    tool is installed; otherwise, a line on stderr says what is missing.
    """

    def __init__(self, coco: Annotations, cocoRes: Annotations) -> None:
        self.coco, self.cocoRes = coco, cocoRes
        self.params: dict[str, Any] = {"image_id": coco.getImgIds()}
        self.eval: dict[str, float] = {}
        self.imgToEval: dict[Any, dict[str, Any]] = {}
        self.evalImgs: list[dict[str, Any]] = []

    def evaluate(self) -> None:
        """Evaluates the pictures in ``params["image_id"]`` and prints each metric."""
        ids, tokenizer = self.params["image_id"], PTBTokenizer()
        print("tokenization...")
        gts = tokenizer.tokenize({key: self.coco.imgToAnns[key] for key in ids})
        res = tokenizer.tokenize({key: self.cocoRes.imgToAnns[key] for key in ids})
        print("setting up scorers...")
        scorers: list[Any] = [Bleu(), Meteor(), Rouge(), Cider()]
        try:
            scorers.append(Spice())
        except TellapartError as error:
            say(f"SPICE is omitted: {error}")
        for scorer in scorers:
            print(f"computing {scorer.method()} score...")
            score, scores = scorer.compute_score(gts, res)
            if isinstance(scorer, Bleu):
                for order, (corpus, values) in enumerate(zip(score, scores, strict=True), 1):
                    self.setEval(corpus, f"Bleu_{order}")
                    self.setImgToEvalImgs(values, gts, f"Bleu_{order}")
            else:
                name = "ROUGE_L" if isinstance(scorer, Rouge) else scorer.method()
                self.setEval(score, name)
                self.setImgToEvalImgs(scores, sorted(gts) if isinstance(scorer, Spice) else gts, name)
        self.setEvalImgs()

    def setEval(self, score: float, method: str) -> None:
        """Stores and prints a corpus score."""
        self.eval[method] = score
        print(f"{method}: {score:0.3f}")

    def setImgToEvalImgs(self, scores: Iterable[Any], imgIds: Iterable[Hashable], method: str) -> None:
        """Stores a metric's score for each picture."""
        for key, score in zip(imgIds, scores, strict=True):
            self.imgToEval.setdefault(key, {"image_id": key})[method] = score

    def setEvalImgs(self) -> None:
        """Creates ``evalImgs`` from ``imgToEval``."""
        self.evalImgs = list(self.imgToEval.values())


def _as_package() -> None:
    """Registers pycocoevalcap's module names, for scripts that import from them."""
    everything = [Bleu, Meteor, Rouge, Cider, Spice, PTBTokenizer, COCOEvalCap]
    within = {f"{one.__name__.lower()}.{one.__name__.lower()}": [one] for one in everything[:5]}
    within |= {"tokenizer.ptbtokenizer": [PTBTokenizer], "eval": everything}
    for path, classes in within.items():
        above, name = sys.modules[__name__], __name__
        for part in path.split("."):
            name = f"{name}.{part}"
            module = sys.modules.setdefault(name, ModuleType(name, __doc__))
            setattr(above, part, module)
            above = module
        vars(above).update({one.__name__: one for one in classes})


_as_package()
