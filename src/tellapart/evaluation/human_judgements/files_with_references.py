"""Reads ratings whose files contain the references: CLIPScore, Polaris, Nebula, LongCap-Arena and DetailCaps."""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tellapart.data.text_files import read_json
from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.judgements import Judgements, RatedCaption
from tellapart.evaluation.human_judgements.records import rating_of, read_records
from tellapart.evaluation.human_judgements.references import DROPPED, without_reference_captions
from tellapart.utils.strict_json import parse_json

SCORES = ("score", "human_score")
_ASPECTS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
_SPLITS = {"val": "a", "test": "b"}  # the paper's names for the two halves of DCI


def clipscore_json(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads the CLIPScore authors' JSON, which has one rating per record. Merges records of the same caption."""
    joined: dict[tuple[str, str], tuple[tuple[str, ...], list[float]]] = {}
    entries = read_json(path)
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise UsageError(
            f"{path}: expected a JSON object whose values are objects, one per picture; otherwise, add --layout"
        )
    for entry in entries.values():
        own = tuple(" ".join(text.split()) for text in entry.get("ground_truth", ()))
        for judged in entry.get("human_judgement", ()):
            rating = float(judged.get("rating", math.nan))
            if not math.isnan(rating):
                key = (str(judged.get("image_path", entry.get("image_path"))), " ".join(judged["caption"].split()))
                joined.setdefault(key, (own, []))[1].append(rating)
    rows = [RatedCaption(*key, own, tuple(ratings)) for key, (own, ratings) in joined.items()]
    binary = all(0 <= rating <= 1 for row in rows for rating in row.ratings)
    return Judgements("clipscore", without_reference_captions(rows), tau="b" if binary else "c", rule=DROPPED)


def polaris(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads mean crowd ratings, 0 to 1, of how well a caption fits its picture (Wada et al. 2024)."""
    return Judgements("polaris", tuple(_scored_captions(path)), judges="crowd, 0-1")


def nebula(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads Nebula (Matsuda et al. 2024) like `polaris`. Uses the scores corrected by Spica if Spica's files are in the
    same folder.
    """
    rows, corrections = _scored_captions(path), _spica_scores(path)
    if not corrections:
        note = "published figures use scores corrected by Spica; put spica_train.csv, … into the same folder"
        return Judgements("nebula", tuple(rows), judges="crowd, 0-1", notes=(note,))
    fixed = [
        replace(row, ratings=(corrections.get((_stem(row.picture), row.caption), row.ratings[0]),)) for row in rows
    ]
    return Judgements("nebula", tuple(fixed), judges="crowd, 0-1", rule="scores:corrected-by-spica")


def longcap_arena(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads people's ratings of one aspect of long captions (Matsuda et al. 2025). The file name states the aspect and
    the split.
    """
    parts = re.split(r"[_.-]", path.name)
    aspect = next((name for name in _ASPECTS if name in parts), "")
    split = next((_SPLITS[name] for name in parts if name in _SPLITS), "")
    judges = f"people, {_ASPECTS[aspect]}" if aspect else "people"
    rows = tuple(_scored_captions(path))
    return Judgements("longcap-arena", rows, judges=judges, table=f"longcap-arena:{split}-{aspect}")


def detailcaps(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads three models' detailed captions with GPT-4 scores from the public file (Dong et al. 2024)."""
    rows, without = [], 0
    for number, record in enumerate(read_records(path)):
        own = tuple(str(text) for key, text in record.items() if key.startswith("GT_Caption") and text)
        scores = record.get("GPT4_Eval")
        scores = parse_json(scores) if isinstance(scores, str) else scores
        if not own or not isinstance(scores, dict):
            without += 1
            continue
        rows += [
            RatedCaption(str(record.get("image", number)), record[model], own, (rating_of(path, score),))
            for model, score in scores.items()
            if isinstance(record.get(model), str) and isinstance(score, int | float | str)
        ]
    notes = (f"{without:,} pictures without scores or references are omitted",) if without else ()
    return Judgements("detailcaps", tuple(rows), judges="GPT-4, not people", notes=notes)


def scored_layout(path: Path) -> str:
    """Returns the layout that the names of a file and its folder suggest: Polaris, Nebula or LongCap-Arena."""
    name = f"{path.parent.name}/{path.name}".lower()
    if "longcap" in name or re.match(r"(desc|rel|flu)_", path.name):
        return "longcap-arena"
    return "nebula" if "nebula" in name else "polaris"


def _scored_captions(path: Path) -> list[RatedCaption]:
    rows = []
    for number, record in enumerate(read_records(path), 1):
        given = {name: value for name, value in record.items() if value is not None}
        caption, refs = given.get("mt", given.get("cand")), given.get("refs")
        if caption is None or refs is None:
            raise UsageError(f"{path}, row {number} has no caption (mt or cand) or no references (refs); expected both")
        refs = ast.literal_eval(refs) if isinstance(refs, str) else refs
        refs = tuple(" ".join(str(text).split()) for text in refs)
        names = (given.get(name) for name in ("imgid", "file_name", "image_path", "image", "path"))
        # Polaris' Parquet does not identify pictures, but captions of one picture have the same references.
        picture = next((str(name) for name in names if isinstance(name, str | int)), " | ".join(refs))
        score = rating_of(path, given.get("score", given.get("human_score")))
        rows.append(RatedCaption(picture, " ".join(str(caption).split()), refs, (score,)))
    return rows


def _spica_scores(path: Path) -> dict[tuple[str, str], float]:
    """Returns mean scores by picture and caption from the ``spica_*.csv`` files in the same folder as ``path``."""
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for file in sorted(path.parent.glob("spica_*.csv")):
        for record in read_records(file):
            scores[_stem(record["imgid"]), " ".join(record["mt"].split())].append(rating_of(file, record["score"]))
    return {key: sum(values) / len(values) for key, values in scores.items()}


def _stem(name: str) -> str:
    return PurePosixPath(name).stem
