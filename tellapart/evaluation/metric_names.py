"""What people call a metric: our key in any case, the COCO tools' name, the papers' name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from tellapart.metrics.results import ORACLE

# A name that stands for several keys: a pattern over the keys. Names are spelt as `spelt` gives them.
GROUPS: dict[str, str] = {
    "bleu": r"bleu\d",
    "div": r"div\d",
    "emscore": r"emscore_[prf]",
    "bertscore": r"bertscore_[prf]",
    "recall": r"recall@\d+\..*",
    "recall@1": r"recall@1\..*",
    "r@1": r"recall@1\..*",
    "recall@5": r"recall@5\..*",
    "r@5": r"recall@5\..*",
    "meanrank": r"mean_rank\..*",
    "truematch": r"(recall@1|mean_rank)\.bag\d+",
}
# Another name of one key.
ALIASES: dict[str, str] = {
    **{f"b@{n}": f"bleu{n}" for n in range(1, 5)},
    **{f"b{n}": f"bleu{n}" for n in range(1, 5)},
    "rouge": "rouge_l",
    "ciderd": "cider",
    "clips": "clipscore",
    "refclips": "refclipscore",
    "perplexity": "ppl",
    "bertscoref1": "bertscore_f",
    "selfbleu": "mbleu",
    "repetition": "repetition_rate",
    "rep": "repetition_rate",
    "captionlength": "length",
    "avglength": "length",
    "lexdiversity": "lexical_diversity",
    "lexicaldiv": "lexical_diversity",
    "vocab": "vocabulary",
    "vocabularysize": "vocabulary",
    "hallucination": "hallucination_rate",
    "p@1": "recall@1.random100",  # paper 3: consecutive hundreds of the test set
    "rd100": "recall@1.random100-shuffled",  # paper 2: a fixed random permutation cut into hundreds
}
_ALIKE = 0.75  # below this, two names are no misspelling of each other: 'chair' is not 'cider'
_SHORTEST_START = 4  # letters of a name that may stand for the whole in a suggestion


def spelt(name: str) -> str:
    """A name without what people spell differently: case, blanks, hyphens, underscores, brackets."""
    return re.sub(r"[\s_(){}-]+", "", name.lower())


def resolve(name: str, keys: Collection[str]) -> list[str]:
    """The keys that a name stands for, in the order of the table; empty where it is no metric's name."""
    if name in keys:
        return [name]
    wanted = spelt(name)
    plain = [key for key in keys if not key.endswith(ORACLE)]
    if wanted in GROUPS and (found := [key for key in plain if re.fullmatch(GROUPS[wanted], key)]):
        return found
    base = wanted.removesuffix(ORACLE)
    wanted = spelt(ALIASES.get(base, base)) + wanted[len(base) :]
    return [key for key in keys if spelt(key) == wanted][:1]


def suggestion(name: str, keys: Collection[str]) -> str:
    """A hint at the metric that was meant, such as ``; did you mean 'meteor'?``; else how to see them all."""
    wanted = spelt(name)
    names = {spelt(key): key for key in keys} | {alias: key for alias, key in ALIASES.items() if key in keys}
    begun = [known for known in names if len(wanted) >= _SHORTEST_START and known.startswith(wanted)]
    close = sorted(begun) or difflib.get_close_matches(wanted, names, n=1, cutoff=_ALIKE)
    return f"; did you mean '{names[close[0]]}'?" if close else "; type --metrics list to see them all"
