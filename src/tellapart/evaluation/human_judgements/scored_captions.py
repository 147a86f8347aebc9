"""Reads Polaris, Nebula and LongCap-Arena: CSV or Parquet rows with a caption, its references and one score."""

from __future__ import annotations

import ast
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.files import column_names, open_parquet, rating_of, text_of
from tellapart.evaluation.human_judgements.judgements import Judgements, RatedCaption

SCORES = ("score", "human_score")
_ASPECTS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
_SPLITS = {"val": "a", "test": "b"}  # the paper's names for the two halves of DCI


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


def scored_layout(path: Path) -> str:
    name = f"{path.parent.name}/{path.name}".lower()
    if "longcap" in name or re.match(r"(desc|rel|flu)_", path.name):
        return "longcap-arena"
    return "nebula" if "nebula" in name else "polaris"


def _scored_captions(path: Path) -> list[RatedCaption]:
    rows = []
    for number, record in enumerate(_scored_records(path), 1):
        caption = next((record[name] for name in ("mt", "cand") if record.get(name) is not None), None)
        score = next((record[name] for name in SCORES if record.get(name) is not None), None)
        if caption is None or record.get("refs") is None:
            raise UsageError(f"{path}, row {number} has no caption (mt or cand) or no references (refs); expected both")
        given = ast.literal_eval(record["refs"]) if isinstance(record["refs"], str) else record["refs"]
        refs = tuple(" ".join(str(text).split()) for text in given)
        names = (record.get(name) for name in ("imgid", "file_name", "image_path", "image", "path"))
        # Polaris' Parquet does not identify pictures, but captions of one picture have the same references.
        picture = next((str(name) for name in names if isinstance(name, str | int)), " | ".join(refs))
        rows.append(RatedCaption(picture, " ".join(str(caption).split()), refs, (rating_of(path, score),)))
    return rows


def _scored_records(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".parquet":
        yield from csv.DictReader(io.StringIO(text_of(path)))
        return
    wanted = {"imgid", "file_name", "refs", "cand", "mt", *SCORES}
    for batch in open_parquet(path).iter_batches(batch_size=256, columns=sorted(wanted & column_names(path))):
        yield from batch.to_pylist()


def _spica_scores(path: Path) -> dict[tuple[str, str], float]:
    """Returns mean scores by picture and caption from the ``spica_*.csv`` files in the same folder as ``path``."""
    scores: dict[tuple[str, str], list[float]] = {}
    for file in sorted(path.parent.glob("spica_*.csv")):
        for record in csv.DictReader(io.StringIO(text_of(file))):
            key = (_stem(record["imgid"]), " ".join(record["mt"].split()))
            scores.setdefault(key, []).append(rating_of(file, record["score"]))
    return {key: sum(values) / len(values) for key, values in scores.items()}


def _stem(name: str) -> str:
    return PurePosixPath(name).stem
