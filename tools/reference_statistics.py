"""Computes statistics of a data set's references, by which the domain `cocolike` of `scenes` was chosen.

    python tools/reference_statistics.py 'scenes:cocolike?n=1000' coco_karpathy_test.json

Arguments are data specifications, or JSON files in COCO's layout, which may lack their pictures. Prints a row of a
table for each: references of a picture, words of a reference (mean and deviation), the share that has an attribute, and
how well a picture's first reference agrees with its others (CIDEr-D in percent, document frequencies of the data). In
`scenes` attributes are words that say a colour, a size or a texture; elsewhere adjectives, by the tagger of the extra
`words`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tellapart.data import open_data
from tellapart.language.tagged_words import tag_words
from tellapart.metrics.cider import cider_d
from tellapart.metrics.lexical import words

SAMPLE = 1000  # pictures whose references are tagged


def attribute_of_scenes() -> Callable[[str], bool]:
    """Returns whether a reference of `scenes` mentions a colour, a size or a texture."""
    from tellapart.scenes import vocabulary as v

    tables = [v.WORDS[slot] for slot in ("colour", "size", "texture")]
    known = {word for table in tables for synonyms in table.values() for phrase in synonyms for word in phrase.split()}
    return lambda text: any(word in known for word in text.lower().split())


def has_adjective(text: str) -> bool:
    """Returns whether a word is tagged as an adjective (CLAWS 5: AJ0, AJC, AJS)."""
    return any(tag.startswith("AJ") for _, tag in tag_words(words(text, lower=True)))


def references_of(name: str) -> tuple[list[Sequence[str]], Callable[[str], bool]]:
    """Returns the references of each picture, and a function that says whether one has an attribute."""
    if name.endswith(".json"):
        pictures: dict[int, list[str]] = {}
        for each in json.loads(Path(name).read_text(encoding="utf-8"))["annotations"]:
            pictures.setdefault(each["image_id"], []).append(each["caption"])
        return list(pictures.values()), has_adjective
    items = list(open_data(name))
    return [item.references for item in items], has_adjective if items[0].truth is None else attribute_of_scenes()


def row(name: str) -> str:
    """Returns one line of the Markdown table."""
    pictures, attribute = references_of(name)
    length_R = np.array([len(words(text)) for references in pictures for text in references])
    shown = pictures[:: max(1, len(pictures) // SAMPLE)]
    share = np.mean([attribute(text) for references in shown for text in references])
    several = [references for references in pictures if len(references) > 1]
    agreement = cider_d([each[0] for each in several], [list(each[1:]) for each in several])[0]
    each = len(length_R) / len(pictures)
    return (
        f"| {name} | {each:.1f} | {length_R.mean():.1f} ± {length_R.std():.1f} | {100 * share:.0f} | "
        f"{100 * agreement:.0f} |"
    )


def main() -> None:
    print(
        "| references | of a picture | words | with an attribute, % | agreement, CIDEr-D |\n|---|---:|---:|---:|---:|"
    )
    for name in sys.argv[1:]:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
