"""Reads human ratings and comparisons of captions from every published layout (`read_judgements`)."""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tellapart.data.caption_matching import preview_ids
from tellapart.errors import MissingExtra, TellapartError, UsageError, nearest
from tellapart.evaluation.matching import read_references
from tellapart.utils.messages import parse_json


@dataclass(frozen=True)
class RatedCaption:
    """A caption of a picture with references and human ratings, which are empty if it was only compared."""

    picture: str
    caption: str
    references: tuple[str, ...]
    ratings: tuple[float, ...] = ()
    system: str = ""


@dataclass(frozen=True)
class ComparedPair:
    """Two captions of one picture, by index in `Judgements.captions`; people prefer ``better``.

    tied: equally many people prefer each, so whichever one a metric prefers, it counts as half right.
    """

    better: int
    worse: int
    category: str = ""
    tied: bool = False


@dataclass(frozen=True)
class Judgements:
    """A published set of human judgements.

    tau: the variant ("b" or "c") that papers report; "" if they report accuracy on pairs.
    table: the key in `tellapart.evaluation.published_agreement`, if it is not the layout.

    rule: how captions that are also a reference are treated, for the signature.
    judges: the people who rated.
    """

    layout: str
    captions: tuple[RatedCaption, ...]
    pairs: tuple[ComparedPair, ...] = ()
    tau: str = "c"
    rule: str = ""
    judges: str = "people"
    notes: tuple[str, ...] = ()
    table: str = ""

    @property
    def ratings(self) -> int:
        """Returns the number of ratings."""
        return sum(len(caption.ratings) for caption in self.captions)

    def with_pairs_of_ratings(self) -> Judgements:
        """Adds pairs if there are only ratings: each pair of captions of a picture with different mean ratings."""
        if self.pairs:
            return self
        of_picture: dict[str, list[int]] = {}
        for row, caption in enumerate(self.captions):
            if caption.ratings:
                of_picture.setdefault(caption.picture, []).append(row)
        mean = [sum(caption.ratings) / len(caption.ratings) if caption.ratings else 0.0 for caption in self.captions]
        pairs = [
            ComparedPair(*((first, second) if mean[first] > mean[second] else (second, first)))
            for rows in of_picture.values()
            for place, first in enumerate(rows)
            for second in rows[place + 1 :]
            if mean[first] != mean[second]
        ]
        return replace(self, pairs=tuple(pairs))


def without_reference_captions(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """Returns the captions that are not a reference of their picture (Flickr8k-Expert and -CF)."""
    return tuple(row for row in rows if _same(row.caption) not in {_same(text) for text in row.references})


def without_own_reference(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """Removes each caption from its own references (Composite, THumB, FOIL).

    Drops captions that are left without a reference.
    """
    kept = [
        replace(row, references=tuple(text for text in row.references if _same(text) != _same(row.caption)))
        for row in rows
    ]
    return tuple(row for row in kept if row.references)


def _same(text: str) -> str:
    return " ".join(text.split()).rstrip(" .").lower()


# References, found by the various picture names in published judgements.

_COCO_NAME = re.compile(r"(?:COCO_\w+_)?0*(\d+)")


class PictureReferences:
    """References by id, file name, stem or COCO number, and captions by Flickr8k's ``name#k``."""

    def __init__(self, texts: dict[str, list[str]], files: dict[str, str]) -> None:
        self._texts = {name: own for id_, own in texts.items() for name in _names_of(id_)}
        self._texts |= {name: texts[id_] for id_, file in files.items() for name in _names_of(file)}
        self.missing: list[str] = []

    def of(self, *names: str) -> tuple[str, ...]:
        """Returns all references of a picture, given any of its names; () if there are none, which `require` reports
        later.
        """
        known = (self._texts[each] for name in names for each in _names_of(name) if each in self._texts)
        if not (found := tuple(next(known, ()))):
            self.missing.append(names[-1])
        return found

    def caption(self, caption_id: str) -> str | None:
        """Returns the text of ``name.jpg#k``, the k-th reference of a picture."""
        picture, _, place = caption_id.rpartition("#")
        own = self.of(picture)
        if place.isdigit() and int(place) < len(own):
            return own[int(place)]
        if own:
            self.missing.append(caption_id)
        return None

    def require(self, judged: Path, rows: int) -> None:
        """Raises `UsageError` if a judged picture had no reference. ``rows``: number of judgements with references."""
        if self.missing:
            raise UsageError(
                f"{judged}: {len(self.missing):,} of {rows + len(self.missing):,} judged captions have no "
                f"reference or no text ({preview_ids(dict.fromkeys(self.missing))}); pass the references of these "
                "pictures"
            )


def open_references(paths: Sequence[Path], judged: Path, expected: Sequence[str], why: str) -> PictureReferences:
    """Reads ``--references``, or else the first existing one of the ``expected`` files next to the judgements.

    Raises `UsageError` if there is neither; ``why`` explains what they are needed for.
    """
    found = list(paths) or [judged.parent / name for name in expected if (judged.parent / name).is_file()][:1]
    if not found:
        names = " or ".join(expected)
        raise UsageError(f"{judged}: {why}; add --references FILE ({names}), or put that file next to the judgements")
    read = read_references(found)
    assert read is not None
    return PictureReferences(read.texts, read.files)


def _names_of(name: str) -> list[str]:
    """Returns a picture's possible names, most specific first."""
    file = PurePosixPath(name.replace("\\", "/")).name
    stem = re.sub(r"\.(jpe?g|png|webp|gif|bmp)$", "", file, flags=re.IGNORECASE)
    number = _COCO_NAME.fullmatch(stem)
    return list(dict.fromkeys([name, file, stem, *([f"#{number[1]}"] if number else [])]))


# Pascal-50S: pairs of captions with 48 votes on which is more similar to a reference (Vedantam et al. 2015).

VOTES = 48  # triplets per pair, each with a reference and a vote
REFERENCES = 5  # references sampled from the 48, as in papers
SEED = 0
CATEGORIES = {1: "HC", 2: "HI", 3: "HM", 4: "MM"}


def pascal_50s(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads ``pair_pascal.mat`` and ``consensus_pascal.mat``; samples five of the 48 references with a fixed seed.

    Categories: two correct human captions (HC); two human captions, one of them for another picture (HI); one human and
    one machine caption (HM); two machine captions (MM). Raises `UsageError`, and `MissingExtra` without scipy.
    """
    pairs_file, triplets_file = path.parent / "pair_pascal.mat", path.parent / "consensus_pascal.mat"
    for file in (pairs_file, triplets_file):
        if not file.is_file():
            raise UsageError(
                f"{file} does not exist; expected pair_pascal.mat and consensus_pascal.mat in the same folder"
            )
    pair_file, triplet_file = _load(pairs_file), _load(triplets_file)
    try:
        inputs, categories = pair_file["new_input"].ravel(), pair_file["category"].ravel()
        triplets = triplet_file["triplets"].ravel()
    except KeyError as error:
        raise UsageError(
            f"{path.parent} does not contain {error}; expected the files published by the authors of Pascal-50S"
        ) from None
    if len(triplets) != VOTES * len(inputs):
        raise UsageError(
            f"{triplets_file} contains {len(triplets):,} triplets for {len(inputs):,} pairs; expected {VOTES} per pair"
        )
    rng = np.random.default_rng(SEED)
    captions: list[RatedCaption] = []
    pairs: list[ComparedPair] = []
    for number, (entry, category) in enumerate(zip(inputs, categories, strict=True)):
        picture, first, second = (_string(cell) for cell in entry.ravel()[:3])
        votes = [_triplet(row) for row in triplets[VOTES * number : VOTES * (number + 1)]]
        drawn = tuple(votes[int(place)][0] for place in sorted(rng.choice(VOTES, REFERENCES, replace=False)))
        for_first = sum(preferred == first for _, preferred in votes)
        here = len(captions)
        captions += [RatedCaption(picture, text, drawn) for text in (first, second)]
        better, worse = (here, here + 1) if for_first * 2 >= VOTES else (here + 1, here)
        name = CATEGORIES.get(int(category), str(category))
        pairs.append(ComparedPair(better, worse, name, tied=for_first * 2 == VOTES))
    rule = f"references:{REFERENCES}-of-{VOTES}@seed{SEED}|tied-votes:half"
    return Judgements("pascal-50s", tuple(captions), tuple(pairs), tau="", rule=rule, judges="crowd, 48 votes")


def _triplet(row: Any) -> tuple[str, str]:
    """Returns a reference, and the caption that was judged more similar to it."""
    reference, first, second, vote = (row[name] for name in row.dtype.names[:4]) if row.dtype.names else row.ravel()[:4]
    return _string(reference), _string(first if int(np.ravel(vote)[0]) == 1 else second)


def _string(cell: Any) -> str:
    """Unwraps a text from MATLAB's nested arrays."""
    while isinstance(cell, np.ndarray):
        cell = cell.ravel()[0] if cell.size else ""
    return str(cell).strip()


def _load(path: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise MissingExtra("study", f"{path.name}, a MATLAB file,") from None
    try:
        found: dict[str, Any] = loadmat(path)
    except (ValueError, NotImplementedError, OSError) as error:
        raise UsageError(f"cannot read {path} as a MATLAB file ({error})") from None
    return found


# Readers for human judgements in their published layouts.
#
# | layout | file | looks like |
# |---|---|---|
# | flickr8k-expert | ExpertAnnotations.txt | picture, caption id, three ratings 1-4, tab-separated |
# | flickr8k-cf | CrowdFlowerAnnotations.txt | picture, caption id, share of yes, number of yes, number of no |
# | clipscore | flickr8k.json, … | ``{id: {"image_path", "ground_truth": […], "human_judgement": […]}}`` |
# | composite | 8k_correctness.csv, … | ``;``-separated, Input.image_url, Input.text1, …, Answer.Q1Answer, … |
# | thumb | mscoco_THumB-1.0.jsonl | ``{"seg_id", "image", "hyp", "human_score", "P", "R", "SYS"}`` |
# | foil | foilv1.0_test_2017.json | COCO layout; annotations with "foil", "foil_word", "target_word" |
# | pascal-50s | pair_pascal.mat, with consensus_pascal.mat | MATLAB 5 |
# | detailcaps | DetailCaps-4870's Parquet, or JSON lines | GT_Caption_*, one column for each model, GPT4_Eval |
# | polaris | polaris_test.csv, or Parquet | imgid, mt or cand, refs (a list), score or human_score |
# | nebula | nebula_test.csv, or Parquet, with spica_*.csv | the same |
# | longcap-arena | desc_dci_val.csv, … | imgid, cand, refs, score; one file for each aspect and split |

_FLICKR8K = ("Flickr8k.token.txt", "Flickr8k.lemma.token.txt")
_ANSWERS = range(1, 11)
_DROPPED = "captions-that-are-references:left-out"
_TAKEN_OUT = "captions-that-are-references:out-of-their-references"


def read_judgements(path: Path, layout: str | None = None, references: Sequence[Path] = ()) -> Judgements:
    """Reads human judgements. Infers the layout unless it is given. Raises `UsageError`."""
    if layout is not None and layout not in LAYOUTS:
        raise UsageError(f"unknown layout of judgements '{layout}'{nearest(layout, LAYOUTS)}")
    if not path.is_file():
        raise UsageError(f"{path} does not exist; expected human judgements ({', '.join(LAYOUTS)})")
    name = layout or _recognise(path)
    try:
        found = LAYOUTS[name](path, references)
        if odd := [text for row in found.captions for text in (row.caption, *row.references) if type(text) is not str]:
            raise TypeError(f"a caption is {odd[0]!r}")
    except TellapartError:
        raise
    except Exception as error:  # the file is damaged or has another layout
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UsageError(
            f"{path} cannot be read in the layout {name} ({what}); choose another one with --layout"
        ) from None
    if not found.captions:
        raise UsageError(f"{path} contains no judged caption in the layout {name}; choose another one with --layout")
    return found


def _recognise(path: Path) -> str:
    if path.suffix == ".mat":
        return "pascal-50s"
    if path.suffix == ".parquet":
        try:
            names = _column_names(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path} as Parquet ({error})") from None
        return "detailcaps" if "GPT4_Eval" in names or not set(SCORES) & names else _scored_layout(path)
    text = _text(path)
    head = text.lstrip()[:4096]
    first = text.partition("\n")[0]
    if head.startswith("{") and _is_record(first):
        return "detailcaps" if "GPT4_Eval" in first else "thumb"
    if head.startswith("{"):
        return "foil" if '"foil_word"' in text else "clipscore"
    if "Answer.Q1Answer" in first:
        return "composite"
    if {"refs"} <= (names := set(next(csv.reader([first]), []))) and names & set(SCORES):
        return _scored_layout(path)
    cells = first.split("\t")
    if len(cells) == 5 and "#" in cells[1]:
        rows = [line.split("\t") for line in text.splitlines()[:2000] if line.strip()]
        return "flickr8k-cf" if all(_is_share(row) for row in rows) else "flickr8k-expert"
    raise UsageError(f"{path}: unknown layout; set it with --layout ({', '.join(LAYOUTS)})")


def _is_record(line: str) -> bool:
    try:
        return "hyp" in (value := json.loads(line)) or "GPT4_Eval" in value
    except (ValueError, RecursionError):
        return False


def _is_share(row: list[str]) -> bool:
    """Returns whether this is a row of the CrowdFlower file: the third number is the fourth over the sum of the last
    two.
    """
    try:
        share, yes, no = map(float, row[2:5])
    except ValueError:
        return False
    return yes + no > 0 and math.isclose(share, yes / (yes + no), abs_tol=0.01)


def flickr8k_expert(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads three experts' ratings from 1 to 4, each a separate judgement (Hodosh et al. 2013)."""
    rows = _flickr8k_rows(path, references, lambda cells: tuple(float(cell) for cell in cells))
    return Judgements("flickr8k-expert", without_reference_captions(rows), rule=_DROPPED, judges="experts, 1-4")


def flickr8k_crowdflower(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads the share of people who said that the caption describes the picture; papers report tau-b."""
    rows = _flickr8k_rows(path, references, lambda cells: (float(cells[1]) / (float(cells[1]) + float(cells[2])),))
    kept = without_reference_captions(rows)
    return Judgements("flickr8k-cf", kept, tau="b", rule=_DROPPED, judges="crowd, share of yes votes")


def _flickr8k_rows(
    path: Path, references: Sequence[Path], ratings_of: Callable[[list[str]], tuple[float, ...]]
) -> list[RatedCaption]:
    known = open_references(references, path, _FLICKR8K, "it identifies captions and references by id")
    rows = []
    for number, line in enumerate(_text(path).splitlines(), 1):
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
    """Reads the CLIPScore authors' JSON with one rating per record; merges records of the same caption."""
    joined: dict[tuple[str, str], tuple[tuple[str, ...], list[float]]] = {}
    for entry in _entries(path, _json(path), dict):
        own = tuple(" ".join(text.split()) for text in entry.get("ground_truth", ()))
        for judged in entry.get("human_judgement", ()):
            rating = float(judged.get("rating", math.nan))
            if not math.isnan(rating):
                key = (str(judged.get("image_path", entry.get("image_path"))), " ".join(judged["caption"].split()))
                joined.setdefault(key, (own, []))[1].append(rating)
    rows = [RatedCaption(*key, own, tuple(ratings)) for key, (own, ratings) in joined.items()]
    binary = all(0 <= rating <= 1 for row in rows for rating in row.ratings)
    kept = without_reference_captions(rows)
    return Judgements("clipscore", kept, tau="b" if binary else "c", rule=_DROPPED)


def composite(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads correctness or thoroughness from 1 to 5 (Aditya et al. 2018), one rating per caption."""
    expected = (*_FLICKR8K, "results_20130124.token", "captions_val2014.json")
    known = open_references(references, path, expected, "it contains no references")
    rows = []
    for record in csv.DictReader(io.StringIO(_text(path)), delimiter=";"):
        picture = (record.get("Input.image_url") or "").rpartition("/")[2]
        for number in _ANSWERS:
            caption, answer = record.get(f"Input.text{number}"), record.get(f"Answer.Q{number}Answer")
            if not picture or not caption or not (answer or "").strip():
                continue
            if own := known.of(picture):
                rows.append(RatedCaption(picture, caption, own, (_rating(path, answer),)))
    known.require(path, len(rows))
    return Judgements("composite", without_own_reference(rows), rule=_TAKEN_OUT, judges="crowd, 1-5")


def thumb(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads THumB 1.0's total score of precision and recall, minus penalties (Kasai et al. 2022)."""
    beside = path.parent / "mscoco_references.json"
    if not references and beside.is_file():
        lines = [parse_json(line) for line in _text(beside).splitlines() if line.strip()]
        known = PictureReferences({str(line["seg_id"]): list(line["refs"]) for line in lines}, {})
    else:
        known = open_references(references, path, (beside.name,), "it contains no references")
    rows = []
    for line in _text(path).splitlines():
        if not line.strip():
            continue
        record = parse_json(line)
        score = (_rating(path, record.get("human_score")),)
        if own := known.of(str(record.get("seg_id")), str(record.get("image"))):
            rows.append(RatedCaption(str(record["image"]), record["hyp"], own, score, str(record.get("SYS", ""))))
    known.require(path, len(rows))
    return Judgements("thumb", without_own_reference(rows), rule=_TAKEN_OUT, judges="trained annotators")


def foil(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads pairs of a correct caption and a copy with one wrong word (Shekhar et al. 2017), for pair accuracy."""
    known = open_references(references, path, ("captions_val2014.json",), "it contains no references")
    by_caption: dict[str, dict[bool, list[dict[str, Any]]]] = {}
    for annotation in _entries(path, _json(path).get("annotations", ()), dict):
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
                # Both are scored against the other references, without the correct caption.
                pairs.append(ComparedPair(len(rows), len(rows) + 1, str(wrong.get("target_word", ""))))
                rows += [kept[0], RatedCaption(picture, wrong["caption"], kept[0].references)]
    known.require(path, len(pairs))
    one = tuple(ComparedPair(pair.better, pair.worse) for pair in pairs)  # a table cannot have a column for each word
    return Judgements("foil", tuple(rows), one, tau="", rule=_TAKEN_OUT, judges="by construction")


def detailcaps(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads detailed captions of three models with GPT-4 scores, as in the public file (Dong et al. 2024)."""
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
                rows.append(RatedCaption(picture, record[model], own, (_rating(path, score),), model))
    notes = (f"{without:,} pictures without scores or references are omitted",) if without else ()
    return Judgements("detailcaps", tuple(rows), judges="GPT-4, not people", notes=notes)


def _detailcaps_records(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".parquet":
        yield from (parse_json(line) for line in _text(path).splitlines() if line.strip())
        return
    table = _parquet(path)
    names = [name for name in table.schema_arrow.names if name != "binary"]  # the pictures' bytes
    for batch in table.iter_batches(batch_size=256, columns=names):
        yield from batch.to_pylist()


# Polaris, Nebula and LongCap-Arena: CSV or Parquet rows with a caption, its references and one score.

SCORES = ("score", "human_score")
_ASPECTS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
_SPLITS = {"val": "a", "test": "b"}  # the paper's names for the two halves of DCI


def polaris(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads mean crowd ratings of fit, 0 to 1 (Wada et al. 2024)."""
    return Judgements("polaris", tuple(_scored_captions(path)), judges="crowd, 0-1")


def nebula(path: Path, references: Sequence[Path]) -> Judgements:
    """Like `polaris` (Matsuda et al. 2024). Replaces scores with Spica's corrections if those files are next to the
    file.
    """
    rows, corrections = _scored_captions(path), _spica_scores(path)
    if not corrections:
        note = "published figures use scores corrected by Spica; put spica_train.csv, … next to the file"
        return Judgements("nebula", tuple(rows), judges="crowd, 0-1", notes=(note,))
    fixed = [
        replace(row, ratings=(corrections.get((_stem(row.picture), row.caption), row.ratings[0]),)) for row in rows
    ]
    return Judgements("nebula", tuple(fixed), judges="crowd, 0-1", rule="scores:corrected-by-spica")


def longcap_arena(path: Path, references: Sequence[Path]) -> Judgements:
    """Reads ratings of long captions for one aspect; the file name contains aspect and split (Matsuda et al. 2025)."""
    parts = re.split(r"[_.-]", path.name)
    aspect = next((name for name in _ASPECTS if name in parts), "")
    split = next((_SPLITS[name] for name in parts if name in _SPLITS), "")
    judges = f"people, {_ASPECTS[aspect]}" if aspect else "people"
    rows = tuple(_scored_captions(path))
    return Judgements("longcap-arena", rows, judges=judges, table=f"longcap-arena:{split}-{aspect}")


def _scored_layout(path: Path) -> str:
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
        rows.append(RatedCaption(picture, " ".join(str(caption).split()), refs, (_rating(path, score),)))
    return rows


def _scored_records(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".parquet":
        yield from csv.DictReader(io.StringIO(_text(path)))
        return
    wanted = {"imgid", "file_name", "refs", "cand", "mt", *SCORES}
    for batch in _parquet(path).iter_batches(batch_size=256, columns=sorted(wanted & _column_names(path))):
        yield from batch.to_pylist()


def _spica_scores(path: Path) -> dict[tuple[str, str], float]:
    """Returns mean scores by picture and caption from the ``spica_*.csv`` files next to a file."""
    scores: dict[tuple[str, str], list[float]] = {}
    for file in sorted(path.parent.glob("spica_*.csv")):
        for record in csv.DictReader(io.StringIO(_text(file))):
            key = (_stem(record["imgid"]), " ".join(record["mt"].split()))
            scores.setdefault(key, []).append(_rating(file, record["score"]))
    return {key: sum(values) / len(values) for key, values in scores.items()}


def _stem(name: str) -> str:
    return PurePosixPath(name).stem


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("parquet", f"{path.name}, a Parquet file,") from None
    return parquet.ParquetFile(path)


def _column_names(path: Path) -> set[str]:
    return set(_parquet(path).schema_arrow.names)


def _rating(path: Path, value: object) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{path}: '{value}' is not a rating; expected a number")
    return number


def _json(path: Path) -> Any:
    try:
        return parse_json(_text(path))
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON ({error})") from None


def _entries(path: Path, value: Any, kind: type) -> list[Any]:
    found = list(value.values()) if isinstance(value, dict) else list(value)
    if not all(isinstance(entry, kind) for entry in found):
        raise UsageError(
            f"{path}: expected a JSON object whose values are objects, one per entry; for another layout, use --layout"
        )
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return path.read_text(encoding="latin-1")  # Composite's files come from a spreadsheet


Reader = Callable[[Path, Sequence[Path]], Judgements]
LAYOUTS: dict[str, Reader] = {
    "flickr8k-expert": flickr8k_expert,
    "flickr8k-cf": flickr8k_crowdflower,
    "clipscore": clipscore_json,
    "composite": composite,
    "thumb": thumb,
    "foil": foil,
    "pascal-50s": pascal_50s,
    "detailcaps": detailcaps,
    "polaris": polaris,
    "nebula": nebula,
    "longcap-arena": longcap_arena,
}
