"""Reads ratings whose files do not contain the references (Flickr8k, Composite, THumB), and FOIL's pairs.

The pictures' references are in a separate file.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tellapart.data.text_files import read_json
from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.judgements import ComparedPair, Judgements, RatedCaption
from tellapart.evaluation.human_judgements.records import rating_of, read_records, text_of
from tellapart.evaluation.human_judgements.references import (
    DROPPED,
    TAKEN_OUT,
    references_of,
    require_texts,
    without_own_reference,
    without_reference_captions,
)

_FLICKR8K = ("Flickr8k.token.txt", "Flickr8k.lemma.token.txt")
_NO_REFERENCES = "it contains no references"


def flickr8k_expert(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads three experts' ratings from 1 to 4, each as a separate judgement (Hodosh et al. 2013)."""
    rows = _flickr8k_rows(path, references, lambda *ratings: ratings)
    return Judgements("flickr8k-expert", rows, rule=DROPPED, judges="experts, 1-4")


def flickr8k_crowdflower(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads the share of people who said that the caption describes the picture. Papers report tau-b."""
    rows = _flickr8k_rows(path, references, lambda share, yes, no: (yes / (yes + no),))
    return Judgements("flickr8k-cf", rows, tau="b", rule=DROPPED, judges="crowd, share of yes votes")


def _flickr8k_rows(
    path: Path, references: Sequence[Path], ratings_of: Callable[..., tuple[float, ...]]
) -> tuple[RatedCaption, ...]:
    judged: list[tuple[str, str, tuple[float, ...]]] = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 5:
            raise UsageError(
                f"{path}, line {number} has {len(cells)} columns; expected picture, caption id and 3 numbers"
            )
        try:
            ratings = ratings_of(*map(float, cells[2:]))
            if not all(map(math.isfinite, ratings)):
                raise ValueError
        except (ValueError, ZeroDivisionError):
            raise UsageError(f"{path}, line {number}: {'/'.join(cells[2:])} are not ratings") from None
        judged.append((cells[0], cells[1], ratings))
    # A caption id such as name.jpg#2 stands for the third reference of a picture.
    pictures = dict.fromkeys(name for picture, id_, _ in judged for name in (picture, id_.rpartition("#")[0]))
    texts = references_of(pictures, references, path, _FLICKR8K, "it identifies captions and references by id")
    caption_of = {f"{picture}#{place}": text for picture, own in texts.items() for place, text in enumerate(own)}
    require_texts(path, [id_ for _, id_, _ in judged if id_ not in caption_of], len(judged), "captions")
    rows = [RatedCaption(picture, caption_of[id_], texts[picture], ratings) for picture, id_, ratings in judged]
    return without_reference_captions(rows)


def composite(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads correctness or thoroughness from 1 to 5 (Aditya et al. 2018), one rating per caption."""
    judged: list[tuple[str, str, float]] = []
    for record in csv.DictReader(io.StringIO(text_of(path)), delimiter=";"):
        picture = (record.get("Input.image_url") or "").rpartition("/")[2]
        for number in range(1, 11):
            caption, answer = record.get(f"Input.text{number}"), record.get(f"Answer.Q{number}Answer")
            if picture and caption and (answer or "").strip():
                judged.append((picture, caption, rating_of(path, answer)))
    expected = (*_FLICKR8K, "results_20130124.token", "captions_val2014.json")
    texts = references_of(dict.fromkeys(own[0] for own in judged), references, path, expected, _NO_REFERENCES)
    rows = [RatedCaption(picture, caption, texts[picture], (rating,)) for picture, caption, rating in judged]
    return Judgements("composite", without_own_reference(rows), rule=TAKEN_OUT, judges="crowd, 1-5")


def thumb(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads THumB 1.0's total score, which combines precision and recall minus penalties (Kasai et al. 2022)."""
    records = list(read_records(path))
    beside = path.parent / "mscoco_references.json"
    if not references and beside.is_file():
        known = {str(line["seg_id"]): tuple(line["refs"]) for line in read_records(beside)}
        texts_of = [known.get(str(record["seg_id"]), ()) for record in records]
        missing = [str(record["image"]) for record, own in zip(records, texts_of, strict=True) if not own]
        require_texts(path, missing, len(records), "captions")
    else:
        pictures = [str(record["image"]) for record in records]
        texts = references_of(dict.fromkeys(pictures), references, path, (beside.name,), _NO_REFERENCES)
        texts_of = [texts[picture] for picture in pictures]
    rows = [
        RatedCaption(str(record["image"]), record["hyp"], own, (rating_of(path, record.get("human_score")),))
        for record, own in zip(records, texts_of, strict=True)
    ]
    return Judgements("thumb", without_own_reference(rows), rule=TAKEN_OUT, judges="trained annotators")


def foil(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads pairs of a correct caption and a copy with one wrong word, for pair accuracy (Shekhar et al. 2017)."""
    right_of: dict[str, dict[str, Any]] = {}
    wrong_of: dict[str, list[str]] = defaultdict(list)
    for annotation in read_json(path)["annotations"]:
        if annotation.get("foil") and annotation.get("foil_word") != "ORIG":
            wrong_of[str(annotation["id"])].append(annotation["caption"])
        else:
            right_of.setdefault(str(annotation["id"]), annotation)
    pairs = [(right_of[id_], wrong) for id_, texts in wrong_of.items() if id_ in right_of for wrong in texts]
    pictures = dict.fromkeys(str(right["image_id"]) for right, _ in pairs)
    texts = references_of(pictures, references, path, ("captions_val2014.json",), _NO_REFERENCES)
    rows: list[RatedCaption] = []
    missing: list[str] = []
    for right, wrong in pairs:
        picture = str(right["image_id"])
        # Both captions are scored against the references that remain without the correct caption.
        own = without_own_reference([RatedCaption(picture, right["caption"], texts[picture])])
        missing += [] if own else [picture]
        rows += [caption for row in own for caption in (row, RatedCaption(picture, wrong, row.references))]
    require_texts(path, missing, len(pairs), "captions")
    compared = tuple(ComparedPair(row, row + 1) for row in range(0, len(rows), 2))
    return Judgements("foil", tuple(rows), compared, tau="", rule=TAKEN_OUT, judges="by construction")
