"""Reads ratings in their published formats (Flickr8k, CLIPScore, Composite, THumB, DetailCaps), and FOIL's pairs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.files import entries_of, open_parquet, rating_of, read_json, text_of
from tellapart.evaluation.human_judgements.judgements import ComparedPair, Judgements, RatedCaption
from tellapart.evaluation.human_judgements.reference_captions import (
    DROPPED,
    TAKEN_OUT,
    without_own_reference,
    without_reference_captions,
)
from tellapart.evaluation.human_judgements.references import PictureReferences, open_references
from tellapart.utils.strict_json import parse_json

_FLICKR8K = ("Flickr8k.token.txt", "Flickr8k.lemma.token.txt")
_ANSWERS = range(1, 11)


def flickr8k_expert(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads three experts' ratings from 1 to 4, each as a separate judgement (Hodosh et al. 2013)."""
    rows = _flickr8k_rows(path, references, lambda cells: tuple(float(cell) for cell in cells))
    return Judgements("flickr8k-expert", without_reference_captions(rows), rule=DROPPED, judges="experts, 1-4")


def flickr8k_crowdflower(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads the share of people who said that the caption describes the picture. Papers report tau-b."""
    rows = _flickr8k_rows(path, references, lambda cells: (float(cells[1]) / (float(cells[1]) + float(cells[2])),))
    kept = without_reference_captions(rows)
    return Judgements("flickr8k-cf", kept, tau="b", rule=DROPPED, judges="crowd, share of yes votes")


def _flickr8k_rows(
    path: Path, references: Sequence[Path], ratings_of: Callable[[list[str]], tuple[float, ...]]
) -> list[RatedCaption]:
    known = open_references(references, path, _FLICKR8K, "it identifies captions and references by id")
    rows = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if not line.strip():
            continue
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) != 5:
            raise UsageError(
                f"{path}, line {number} has {len(cells)} columns; expected picture, caption id and 3 numbers"
            )
        try:
            ratings = ratings_of(cells[2:])
            if not all(map(math.isfinite, ratings)):
                raise ValueError
        except (ValueError, ZeroDivisionError):
            raise UsageError(f"{path}, line {number}: {'/'.join(cells[2:])} are not ratings") from None
        own = known.of(cells[0])
        if own and (caption := known.caption(cells[1])) is not None:
            rows.append(RatedCaption(cells[0], caption, own, ratings))
    known.require(path, len(rows))
    return rows


def clipscore_json(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads the CLIPScore authors' JSON, which has one rating per record. Merges records of the same caption."""
    joined: dict[tuple[str, str], tuple[tuple[str, ...], list[float]]] = {}
    for entry in entries_of(path, read_json(path), dict):
        own = tuple(" ".join(text.split()) for text in entry.get("ground_truth", ()))
        for judged in entry.get("human_judgement", ()):
            rating = float(judged.get("rating", math.nan))
            if not math.isnan(rating):
                key = (str(judged.get("image_path", entry.get("image_path"))), " ".join(judged["caption"].split()))
                joined.setdefault(key, (own, []))[1].append(rating)
    rows = [RatedCaption(*key, own, tuple(ratings)) for key, (own, ratings) in joined.items()]
    binary = all(0 <= rating <= 1 for row in rows for rating in row.ratings)
    kept = without_reference_captions(rows)
    return Judgements("clipscore", kept, tau="b" if binary else "c", rule=DROPPED)


def composite(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads correctness or thoroughness from 1 to 5 (Aditya et al. 2018), one rating per caption."""
    expected = (*_FLICKR8K, "results_20130124.token", "captions_val2014.json")
    known = open_references(references, path, expected, "it contains no references")
    rows = []
    for record in csv.DictReader(io.StringIO(text_of(path)), delimiter=";"):
        picture = (record.get("Input.image_url") or "").rpartition("/")[2]
        for number in _ANSWERS:
            caption, answer = record.get(f"Input.text{number}"), record.get(f"Answer.Q{number}Answer")
            if not picture or not caption or not (answer or "").strip():
                continue
            if own := known.of(picture):
                rows.append(RatedCaption(picture, caption, own, (rating_of(path, answer),)))
    known.require(path, len(rows))
    return Judgements("composite", without_own_reference(rows), rule=TAKEN_OUT, judges="crowd, 1-5")


def thumb(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads THumB 1.0's total score, which combines precision and recall minus penalties (Kasai et al. 2022)."""
    beside = path.parent / "mscoco_references.json"
    if not references and beside.is_file():
        lines = [parse_json(line) for line in text_of(beside).splitlines() if line.strip()]
        known = PictureReferences({str(line["seg_id"]): list(line["refs"]) for line in lines}, {})
    else:
        known = open_references(references, path, (beside.name,), "it contains no references")
    rows = []
    for line in text_of(path).splitlines():
        if not line.strip():
            continue
        record = parse_json(line)
        score = (rating_of(path, record.get("human_score")),)
        if own := known.of(str(record.get("seg_id")), str(record.get("image"))):
            rows.append(RatedCaption(str(record["image"]), record["hyp"], own, score, str(record.get("SYS", ""))))
    known.require(path, len(rows))
    return Judgements("thumb", without_own_reference(rows), rule=TAKEN_OUT, judges="trained annotators")


def foil(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads pairs of a correct caption and a copy with one wrong word, for pair accuracy (Shekhar et al. 2017)."""
    known = open_references(references, path, ("captions_val2014.json",), "it contains no references")
    by_caption: dict[str, dict[bool, list[dict[str, Any]]]] = {}
    for annotation in entries_of(path, read_json(path).get("annotations", ()), dict):
        is_foil = bool(annotation.get("foil")) and annotation.get("foil_word") != "ORIG"
        by_caption.setdefault(str(annotation["id"]), {}).setdefault(is_foil, []).append(annotation)
    rows: list[RatedCaption] = []
    pairs = []
    for found in by_caption.values():
        for wrong in found.get(True, ()):
            for right in found.get(False, ())[:1]:
                picture = str(right["image_id"])
                own = RatedCaption(picture, right["caption"], known.of(picture))
                if not (kept := without_own_reference([own])):
                    known.missing += [picture] if own.references else []
                    continue
                # Both captions are scored against the references that remain without the correct caption.
                pairs.append(ComparedPair(len(rows), len(rows) + 1, str(wrong.get("target_word", ""))))
                rows += [kept[0], RatedCaption(picture, wrong["caption"], kept[0].references)]
    known.require(path, len(pairs))
    one = tuple(
        ComparedPair(pair.better, pair.worse) for pair in pairs
    )  # one category for all, because a table cannot have a column for each word
    return Judgements("foil", tuple(rows), one, tau="", rule=TAKEN_OUT, judges="by construction")


def detailcaps(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads three models' detailed captions with GPT-4 scores from the public file (Dong et al. 2024)."""
    rows, without = [], 0
    for number, record in enumerate(_detailcaps_records(path)):
        own = tuple(str(text) for key, text in record.items() if key.startswith("GT_Caption") and text)
        scores = record.get("GPT4_Eval")
        scores = parse_json(scores) if isinstance(scores, str) else scores
        if not own or not isinstance(scores, dict):
            without += 1
            continue
        picture = str(record.get("image", number))
        for model, score in scores.items():
            if isinstance(record.get(model), str) and isinstance(score, int | float | str):
                rows.append(RatedCaption(picture, record[model], own, (rating_of(path, score),), model))
    notes = (f"{without:,} pictures without scores or references are omitted",) if without else ()
    return Judgements("detailcaps", tuple(rows), judges="GPT-4, not people", notes=notes)


def _detailcaps_records(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".parquet":
        yield from (parse_json(line) for line in text_of(path).splitlines() if line.strip())
        return
    table = open_parquet(path)
    names = [name for name in table.schema_arrow.names if name != "binary"]  # the pictures' bytes
    for batch in table.iter_batches(batch_size=256, columns=names):
        yield from batch.to_pylist()
