"""Each metric's agreement with human judgements: rank correlations and accuracy on pairs, as papers print them.

Captions that people rated or compared are read from every published layout (`read_judgements`).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import rich
import rich.table
from rich import box

from tellapart.data import open_data
from tellapart.data.caption_matching import preview_ids
from tellapart.errors import MissingExtra, TellapartError, UsageError, nearest
from tellapart.evaluation.context import EvalContext, EvalInputs
from tellapart.evaluation.evaluate import choose
from tellapart.evaluation.inputs import load_scorers, read_object_inputs, read_references
from tellapart.evaluation.options import JudgeInputs
from tellapart.metrics.registry import Metric
from tellapart.metrics.slots import CaptionSlot
from tellapart.metrics.statistics import bootstrap_weights
from tellapart.utils.messages import parse_json, track


@dataclass(frozen=True)
class RatedCaption:
    """One caption of one picture, its references, and people's ratings: none where it was only compared."""

    picture: str
    caption: str
    references: tuple[str, ...]
    ratings: tuple[float, ...] = ()
    system: str = ""


@dataclass(frozen=True)
class ComparedPair:
    """Two captions of one picture, by their places in `Judgements.captions`; people prefer ``better``.

    tied: as many prefer the one as the other, so a metric is right with either half of the time.
    """

    better: int
    worse: int
    category: str = ""
    tied: bool = False


@dataclass(frozen=True)
class Judgements:
    """A published set. ``tau``: the variant ("b" or "c") that papers print; "" where they print accuracy on pairs.

    rule: what was done with captions that are themselves a reference, for the signature. judges: who rated.
    """

    layout: str
    captions: tuple[RatedCaption, ...]
    pairs: tuple[ComparedPair, ...] = ()
    tau: str = "c"
    rule: str = ""
    judges: str = "people"
    notes: tuple[str, ...] = ()

    @property
    def ratings(self) -> int:
        """The number of ratings."""
        return sum(len(caption.ratings) for caption in self.captions)

    def with_pairs_of_ratings(self) -> Judgements:
        """Adds pairs where there are ratings alone: every two captions of a picture whose mean ratings differ."""
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
    """The captions that are no reference of their picture (Flickr8k-Expert and -CF)."""
    return tuple(row for row in rows if _same(row.caption) not in {_same(text) for text in row.references})


def without_own_reference(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """All captions; one that is a reference is taken out of its references (Composite, THumB, FOIL).

    A picture that has no other reference keeps nothing, and is left out.
    """
    kept = [
        replace(row, references=tuple(text for text in row.references if _same(text) != _same(row.caption)))
        for row in rows
    ]
    return tuple(row for row in kept if row.references)


def _same(text: str) -> str:
    return " ".join(text.split()).rstrip(" .").lower()


# References by the many names that published judgements have for a picture.

_COCO_NAME = re.compile(r"(?:COCO_\w+_)?0*(\d+)")


class PictureReferences:
    """References of pictures, found by id, file name, stem, or COCO's number; and captions by Flickr8k's ``name#k``."""

    def __init__(self, texts: dict[str, list[str]], files: dict[str, str]) -> None:
        self._texts = {name: own for id_, own in texts.items() for name in _names_of(id_)}
        self._texts |= {name: texts[id_] for id_, file in files.items() for name in _names_of(file)}

    def of(self, picture: str) -> tuple[str, ...]:
        """All references of a picture, () where there are none."""
        return tuple(next((self._texts[name] for name in _names_of(picture) if name in self._texts), ()))

    def caption(self, caption_id: str) -> str | None:
        """The text of ``name.jpg#k``, the k-th reference of a picture."""
        picture, _, place = caption_id.rpartition("#")
        own = self.of(picture)
        return own[int(place)] if place.isdigit() and int(place) < len(own) else None


def open_references(paths: Sequence[Path], judged: Path, expected: Sequence[str], why: str) -> PictureReferences:
    """The references of ``--references``, else of the first of the ``expected`` files beside the judgements.

    Raises `UsageError` where there is neither; ``why`` says what they are for.
    """
    found = list(paths) or [judged.parent / name for name in expected if (judged.parent / name).is_file()][:1]
    if not found:
        names = " or ".join(expected)
        raise UsageError(f"{judged}: {why}; add --references FILE ({names}), or put it beside the judgements")
    read = read_references(found)
    assert read is not None
    return PictureReferences(read.texts, read.files)


def require_references(missing: Sequence[str], total: int, judged: Path) -> None:
    """Raise `UsageError` where a picture of the judgements has no reference."""
    if missing:
        raise UsageError(
            f"{judged}: {len(missing):,} of {total:,} judged captions have no reference or no text "
            f"({preview_ids(dict.fromkeys(missing))}); give the references of those pictures"
        )


def _names_of(name: str) -> list[str]:
    """Returns a picture's possible names, the most exact first."""
    file = PurePosixPath(name.replace("\\", "/")).name
    stem = re.sub(r"\.(jpe?g|png|webp|gif|bmp)$", "", file, flags=re.IGNORECASE)
    number = _COCO_NAME.fullmatch(stem)
    return list(dict.fromkeys([name, file, stem, *([f"#{number[1]}"] if number else [])]))


# Pascal-50S: two captions of a picture, and 48 votes on which is more like a reference (Vedantam et al. 2015).

VOTES = 48  # triplets of each pair, a reference and a vote in each
REFERENCES = 5  # drawn of the 48, as papers do
SEED = 0
CATEGORIES = {1: "HC", 2: "HI", 3: "HM", 4: "MM"}


def read_pascal(path: Path) -> Judgements:
    """``pair_pascal.mat`` with ``consensus_pascal.mat`` beside it; five of the 48 references, drawn by a fixed seed.

    Categories: two captions of people, both correct (HC); one of another picture (HI); one of a person and one of a
    machine (HM); two of machines (MM). Raises `UsageError`, and `MissingExtra` without scipy.
    """
    pairs_file, triplets_file = path.parent / "pair_pascal.mat", path.parent / "consensus_pascal.mat"
    for file in (pairs_file, triplets_file):
        if not file.is_file():
            raise UsageError(
                f"{file}: there is no such file; expected pair_pascal.mat and consensus_pascal.mat together"
            )
    pair_file, triplet_file = _load(pairs_file), _load(triplets_file)
    try:
        inputs, categories = pair_file["new_input"].ravel(), pair_file["category"].ravel()
        triplets = triplet_file["triplets"].ravel()
    except KeyError as error:
        raise UsageError(f"{path.parent}: has no {error}; expected the files of the authors of Pascal-50S") from None
    if len(triplets) != VOTES * len(inputs):
        raise UsageError(
            f"{triplets_file}: has {len(triplets):,} triplets for {len(inputs):,} pairs; expected {VOTES} for each"
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
    """A reference, and the caption that was preferred as more like it."""
    reference, first, second, vote = (row[name] for name in row.dtype.names[:4]) if row.dtype.names else row.ravel()[:4]
    return _string(reference), _string(first if int(np.ravel(vote)[0]) == 1 else second)


def _string(cell: Any) -> str:
    """The text in however many arrays MATLAB has put around it."""
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
        raise UsageError(f"{path}: cannot be read as a MATLAB file ({error})") from None
    return found


# Readers of human judgements in the layouts in which they were published.
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

_FLICKR8K = ("Flickr8k.token.txt", "Flickr8k.lemma.token.txt")
_ANSWERS = range(1, 11)
_DROPPED = "captions-that-are-references:left-out"
_TAKEN_OUT = "captions-that-are-references:out-of-their-references"


def read_judgements(path: Path, layout: str | None = None, references: Sequence[Path] = ()) -> Judgements:
    """Human judgements of a file. Its layout is recognised unless it is named. Raises `UsageError`."""
    if layout is not None and layout not in LAYOUTS:
        raise UsageError(f"no layout of judgements is called '{layout}'{nearest(layout, LAYOUTS)}")
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; expected human judgements ({', '.join(LAYOUTS)})")
    name = layout or _recognise(path)
    try:
        found = LAYOUTS[name](path, references)
        if odd := [text for row in found.captions for text in (row.caption, *row.references) if type(text) is not str]:
            raise TypeError(f"a caption is {odd[0]!r}")
    except TellapartError:
        raise
    except Exception as error:  # damaged, or of another layout: whatever its reader did not find
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UsageError(f"{path}: cannot be read in the layout {name} ({what}); name another with --layout") from None
    if not found.captions:
        raise UsageError(f"{path}: holds no judged caption in the layout {name}; name another with --layout")
    return found


def _recognise(path: Path) -> str:
    if path.suffix == ".mat":
        return "pascal-50s"
    if path.suffix == ".parquet":
        return "detailcaps"
    text = _text(path)
    head = text.lstrip()[:4096]
    first = text.partition("\n")[0]
    if head.startswith("{") and _is_record(first):
        return "detailcaps" if "GPT4_Eval" in first else "thumb"
    if head.startswith("{"):
        return "foil" if '"foil_word"' in text else "clipscore"
    if "Answer.Q1Answer" in first:
        return "composite"
    cells = first.split("\t")
    if len(cells) == 5 and "#" in cells[1]:
        rows = [line.split("\t") for line in text.splitlines()[:2000] if line.strip()]
        return "flickr8k-cf" if all(_is_share(row) for row in rows) else "flickr8k-expert"
    raise UsageError(f"{path}: the layout is not recognised; name it with --layout ({', '.join(LAYOUTS)})")


def _is_record(line: str) -> bool:
    try:
        return "hyp" in (value := json.loads(line)) or "GPT4_Eval" in value
    except (ValueError, RecursionError):
        return False


def _is_share(row: list[str]) -> bool:
    """A row of CrowdFlower's: the third number is the fourth over the sum of the last two."""
    try:
        share, yes, no = map(float, row[2:5])
    except ValueError:
        return False
    return yes + no > 0 and math.isclose(share, yes / (yes + no), abs_tol=0.01)


def flickr8k_expert(path: Path, references: Sequence[Path]) -> Judgements:
    """Three experts' ratings from 1 to 4, each of them a judgement of its own (Hodosh et al. 2013)."""
    rows = _flickr8k_rows(path, references, lambda cells: tuple(float(cell) for cell in cells))
    return Judgements("flickr8k-expert", without_reference_captions(rows), rule=_DROPPED, judges="experts, 1-4")


def flickr8k_crowdflower(path: Path, references: Sequence[Path]) -> Judgements:
    """The share of people who say that the caption describes the picture; papers print tau-b."""
    rows = _flickr8k_rows(path, references, lambda cells: (float(cells[1]) / (float(cells[1]) + float(cells[2])),))
    kept = without_reference_captions(rows)
    return Judgements("flickr8k-cf", kept, tau="b", rule=_DROPPED, judges="crowd, share of yes")


def _flickr8k_rows(
    path: Path, references: Sequence[Path], ratings_of: Callable[[list[str]], tuple[float, ...]]
) -> list[RatedCaption]:
    known = open_references(references, path, _FLICKR8K, "captions and references are named by id")
    rows, missing = [], []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) != 5:
            raise UsageError(
                f"{path}, line {number}: has {len(cells)} columns; expected picture, caption id, 3 numbers"
            )
        try:
            ratings = ratings_of(cells[2:])
            if not all(map(math.isfinite, ratings)):
                raise ValueError
        except (ValueError, ZeroDivisionError):
            raise UsageError(f"{path}, line {number}: {'/'.join(cells[2:])} are no ratings") from None
        caption, own = known.caption(cells[1]), known.of(cells[0])
        if caption is None or not own:
            missing.append(cells[0] if not own else cells[1])
        else:
            rows.append(RatedCaption(cells[0], caption, own, ratings))
    require_references(missing, len(rows) + len(missing), path)
    return rows


def clipscore_json(path: Path, references: Sequence[Path]) -> Judgements:
    """The JSON of the CLIPScore authors: a rating a record; records of one caption are joined."""
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
    """Correctness or thoroughness from 1 to 5 (Aditya et al. 2018); one rating for each caption."""
    expected = (*_FLICKR8K, "results_20130124.token", "captions_val2014.json")
    known = open_references(references, path, expected, "it has no references")
    rows, missing = [], []
    for record in csv.DictReader(io.StringIO(_text(path)), delimiter=";"):
        picture = (record.get("Input.image_url") or "").rpartition("/")[2]
        for number in _ANSWERS:
            caption, answer = record.get(f"Input.text{number}"), record.get(f"Answer.Q{number}Answer")
            if not picture or not caption or not (answer or "").strip():
                continue
            if own := known.of(picture):
                rows.append(RatedCaption(picture, caption, own, (_rating(path, answer),)))
            else:
                missing.append(picture)
    require_references(missing, len(rows) + len(missing), path)
    return Judgements("composite", without_own_reference(rows), rule=_TAKEN_OUT, judges="crowd, 1-5")


def thumb(path: Path, references: Sequence[Path]) -> Judgements:
    """THumB 1.0's total score of precision and recall, minus penalties (Kasai et al. 2022)."""
    beside = path.parent / "mscoco_references.json"
    if not references and beside.is_file():
        lines = [parse_json(line) for line in _text(beside).splitlines() if line.strip()]
        known = PictureReferences({str(line["seg_id"]): list(line["refs"]) for line in lines}, {})
    else:
        known = open_references(references, path, (beside.name,), "it has no references")
    rows, missing = [], []
    for line in _text(path).splitlines():
        if not line.strip():
            continue
        record = parse_json(line)
        own = known.of(str(record.get("seg_id"))) or known.of(str(record.get("image")))
        score = (_rating(path, record.get("human_score")),)
        if own:
            rows.append(RatedCaption(str(record["image"]), record["hyp"], own, score, str(record.get("SYS", ""))))
        else:
            missing.append(str(record.get("image")))
    require_references(missing, len(rows) + len(missing), path)
    return Judgements("thumb", without_own_reference(rows), rule=_TAKEN_OUT, judges="trained annotators")


def foil(path: Path, references: Sequence[Path]) -> Judgements:
    """A right caption against the same one with a wrong word (Shekhar et al. 2017): accuracy on pairs."""
    known = open_references(references, path, ("captions_val2014.json",), "it has no references")
    by_caption: dict[str, dict[bool, list[dict[str, Any]]]] = {}
    for annotation in _entries(path, _json(path).get("annotations", ()), dict):
        is_foil = bool(annotation.get("foil")) and annotation.get("foil_word") != "ORIG"
        by_caption.setdefault(str(annotation["id"]), {}).setdefault(is_foil, []).append(annotation)
    rows: list[RatedCaption] = []
    pairs, missing = [], []
    for found in by_caption.values():
        for wrong in found.get(True, ()):
            for right in found.get(False, ())[:1]:
                picture = str(right["image_id"])
                own = RatedCaption(picture, right["caption"], known.of(picture))
                if not (kept := without_own_reference([own])):
                    missing.append(picture)
                    continue
                # Both are measured against the references without the right caption.
                pairs.append(ComparedPair(len(rows), len(rows) + 1, str(wrong.get("target_word", ""))))
                rows += [kept[0], RatedCaption(picture, wrong["caption"], kept[0].references)]
    require_references(missing, len(pairs) + len(missing), path)
    one = tuple(ComparedPair(pair.better, pair.worse) for pair in pairs)  # words are too many for columns of a table
    return Judgements("foil", tuple(rows), one, tau="", rule=_TAKEN_OUT, judges="by construction")


def detailcaps(path: Path, references: Sequence[Path]) -> Judgements:
    """Detailed captions of three models with scores of GPT-4, as the public file has them (Dong et al. 2024)."""
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
    notes = (f"{without:,} pictures have no scores or no references, and are left out",) if without else ()
    return Judgements("detailcaps", tuple(rows), judges="GPT-4, not people", notes=notes)


def _detailcaps_records(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".parquet":
        yield from (parse_json(line) for line in _text(path).splitlines() if line.strip())
        return
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("parquet", f"{path.name}, a Parquet file,") from None
    table = parquet.ParquetFile(path)
    names = [name for name in table.schema_arrow.names if name != "binary"]  # the pictures' bytes
    for batch in table.iter_batches(batch_size=256, columns=names):
        yield from batch.to_pylist()


def pascal_50s(path: Path, references: Sequence[Path]) -> Judgements:
    """See `tellapart.evaluation.agreement`."""

    return read_pascal(path)


def _rating(path: Path, value: object) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{path}: '{value}' is no rating; expected a number")
    return number


def _json(path: Path) -> Any:
    try:
        return parse_json(_text(path))
    except ValueError as error:
        raise UsageError(f"{path}: is not JSON ({error})") from None


def _entries(path: Path, value: Any, kind: type) -> list[Any]:
    found = list(value.values()) if isinstance(value, dict) else list(value)
    if not all(isinstance(entry, kind) for entry in found):
        raise UsageError(f"{path}: expected an object with one object for each entry; name the layout with --layout")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return path.read_text(encoding="latin-1")  # Composite's files are of a spreadsheet


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
}


_NAN = float("nan")

# Rank correlations of a metric with people's ratings, and its accuracy on pairs.
#
# N captions with scores and ratings; suffix P: pairs. Written in sums over the levels of the ratings, because ratings
# have few levels: 145,000 judgements take milliseconds.


def kendall_tau_b(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Kendall's tau-b, -1..1: (C - D) / sqrt of the pairs untied in scores times those untied in ratings.

    NaN where one side has a single value.
    """
    total = _pairs_among(len(score_N))
    untied = float(total - _tied(score_N)) * float(total - _tied(rating_N))
    return _balance(score_N, rating_N) / untied**0.5 if untied else _NAN


def kendall_tau_c(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Kendall's tau-c (Stuart 1953), -1..1: 2 (C - D) / (N² (m - 1) / m), m the smaller number of distinct values.

    What papers print for Flickr8k-Expert and Composite. NaN where one side has a single value.
    """
    smaller = min(len(np.unique(score_N)), len(np.unique(rating_N)))
    if smaller < 2:
        return _NAN
    return 2 * _balance(score_N, rating_N) / (len(score_N) ** 2 * (smaller - 1) / smaller)


def spearman(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Spearman's rho, -1..1: Pearson's correlation of the ranks, equal values sharing their mean rank."""
    a_N, b_N = (rank_N - rank_N.mean() for rank_N in (_ranks(score_N), _ranks(rating_N)))
    norm = float(np.sqrt((a_N @ a_N) * (b_N @ b_N)))
    return float(a_N @ b_N) / norm if norm else _NAN


def pair_accuracy(better_P: np.ndarray, worse_P: np.ndarray) -> float:
    """The share of pairs, 0..1, in which the caption that people prefer has the higher score; a tie counts half."""
    if not len(better_P):
        return _NAN
    return float(np.mean((better_P > worse_P) + 0.5 * (better_P == worse_P)))


def _balance(score_N: np.ndarray, rating_N: np.ndarray) -> int:
    """Concordant minus discordant pairs."""
    lower, balance = np.zeros(0), 0
    for level in np.unique(rating_N):
        here_M = score_N[rating_N == level]
        below = np.searchsorted(lower, here_M, "left").sum()
        above = (len(lower) - np.searchsorted(lower, here_M, "right")).sum()
        balance += int(below) - int(above)
        lower = np.sort(np.concatenate([lower, here_M]), kind="stable")
    return balance


def _pairs_among(n: int) -> int:
    return n * (n - 1) // 2


def _tied(value_N: np.ndarray) -> int:
    return sum(_pairs_among(int(count)) for count in np.unique(value_N, return_counts=True)[1])


def _ranks(value_N: np.ndarray) -> np.ndarray:
    _, place_N, count_U = np.unique(value_N, return_inverse=True, return_counts=True)
    last_U = np.cumsum(count_U)
    mean_U: np.ndarray = last_U - (count_U - 1) / 2
    return mean_U[place_N]


TAUS = {"b": kendall_tau_b, "c": kendall_tau_c}
ALL = "all"  # the mean over the categories of pairs


@dataclass(frozen=True)
class MetricAgreement:
    """One metric's agreement, in percent. None: there are no ratings, or no pairs.

    accuracy: by category of pairs, and "all" (the mean over categories). low, high: the 95 % interval of the tau that
    papers print for this set (of the accuracy where they print that), pictures resampled. n: captions with a value.
    """

    tau_b: float | None
    tau_c: float | None
    spearman: float | None
    accuracy: dict[str, float]
    n: int
    low: float | None = None
    high: float | None = None


@dataclass
class AgreementTable:
    """Metrics by name with their agreement, and what was compared with what."""

    judgements: Judgements
    metrics: dict[str, MetricAgreement] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """``{"judgements": {…}, "metrics": {NAME: {"tau_b", "tau_c", …}}, "signatures": {…}, "notes": […]}``."""
        own = self.judgements
        counts = {
            "layout": own.layout,
            "judges": own.judges,
            "captions": len(own.captions),
            "pictures": len({caption.picture for caption in own.captions}),
            "ratings": own.ratings,
            "pairs": len(own.pairs),
            "tau": own.tau,
        }
        metrics = {name: asdict(found) for name, found in self.metrics.items()}
        return {"judgements": counts, "metrics": metrics, "signatures": self.signatures, "notes": self.notes}

    def table(self) -> rich.table.Table:
        """Metrics down, best first by what papers print for this set."""
        own = self.judgements
        title = f"{own.layout}: {len(own.captions):,} captions, {own.ratings:,} ratings, {len(own.pairs):,} pairs"
        table = rich.table.Table(box=box.SIMPLE_HEAD, title=f"{title}; {own.judges}; ×100")
        table.add_column("metric")
        for head in self._heads():
            table.add_column(head, justify="right")
        for name in sorted(self.metrics, key=self._key, reverse=True):
            table.add_row(self.labels.get(name, name), *self._cells(self.metrics[name]))
        return table

    def rows(self) -> list[list[str]]:
        """The table as text, its heads first, in the order of the metrics."""
        return [
            ["metric", *self._heads()],
            *([self.labels.get(name, name), *self._cells(found)] for name, found in self.metrics.items()),
        ]

    def _heads(self) -> list[str]:
        taus = ["tau-b", "tau-c", "Spearman"] if self.judgements.ratings else []
        return [
            *taus,
            *(f"pairs {name}".removesuffix(f" {ALL}") for name in self._categories()),
            *(["95 %"] if self._resampled() else []),
            "n",
        ]

    def _cells(self, found: MetricAgreement) -> list[str]:
        taus = [found.tau_b, found.tau_c, found.spearman] if self.judgements.ratings else []
        shown = [*taus, *(found.accuracy.get(name) for name in self._categories())]
        cells = ["–" if value is None or np.isnan(value) else f"{value:.1f}" for value in shown]
        interval = (
            [f"{found.low:.1f} … {found.high:.1f}" if found.low is not None else "–"] if self._resampled() else []
        )
        return [*cells, *interval, f"{found.n:,}"]

    def _resampled(self) -> bool:
        return any(found.low is not None for found in self.metrics.values())

    def _categories(self) -> list[str]:
        return list(next((found.accuracy for found in self.metrics.values()), {}))

    def _key(self, name: str) -> float:
        value = _printed(self.metrics[name], self.judgements.tau)
        return -np.inf if value is None or np.isnan(value) else value


def measure_agreement(
    judgements: Judgements,
    metrics: Sequence[str] | None = None,
    *,
    context: EvalContext | None = None,
    resamples: int = 0,
    seed: int = 0,
) -> AgreementTable:
    """The agreement of metrics of one caption with the judgements: all that can be computed, or those named.

    context: of pictures and a scorer, its rows those of the captions; None: texts alone. Each caption is one row, so
    that CIDEr's document frequencies count a picture once for each of its judged captions, as the published figures do.
    A metric whose lower values are better is turned round. Raises `UsageError` for a metric that cannot be had.
    """
    judgements = judgements.with_pairs_of_ratings()
    captions = [row.caption for row in judgements.captions]
    references = [list(row.references) for row in judgements.captions]
    context = context or EvalContext([str(row) for row in range(len(captions))], None, references)
    slot = CaptionSlot(captions, references)
    found = AgreementTable(judgements, notes=list(judgements.notes))
    able, left_out = choose(metrics, context)
    chosen = {name: metric for name, metric in able.items() if not metric.pools}
    found.notes += left_out if metrics is not None else []
    if metrics is None:
        chosen |= _meteor(context, found.notes)
    if metrics is not None and not chosen:
        raise UsageError(f"--metrics names no metric of one caption: {', '.join(metrics)}")
    for name, metric in track(list(chosen.items()), len(chosen), "measuring metrics"):
        value_N = _values(metric, context, slot)
        tag = metric.tag(context)  # a judge's name and days
        if value_N is None or np.all(np.isnan(value_N)):
            if metrics is not None:
                found.notes.append(f"{name} has no number for one caption, and is left out")
            continue
        name = f"{name}@{tag}" if tag else name
        found.metrics[name] = _agreement(value_N, judgements, resamples, seed)
        found.labels[name] = metric.info(scorer=tag).label
        rule = f"|{judgements.rule}" if judgements.rule else ""
        turned = "|turned-round" if metric.direction == "lower" else ""
        found.signatures[name] = f"{name}|{metric.variant(context)}{turned}|judgements:{judgements.layout}{rule}"
    return found


def _meteor(context: EvalContext, notes: list[str]) -> dict[str, Metric]:
    """METEOR, which is in every paper's table and needs files; a note where they are missing."""
    try:
        return choose(["meteor"], context)[0]
    except TellapartError as error:
        notes.append(f"METEOR is left out: {error}")
        return {}


def _values(metric: Metric, context: EvalContext, slot: CaptionSlot) -> np.ndarray | None:
    value_N = metric.of_slot(context, slot).value_N
    if value_N is None or metric.direction != "lower":
        return value_N
    return -np.asarray(value_N)


def _agreement(value_N: np.ndarray, judgements: Judgements, resamples: int, seed: int) -> MetricAgreement:
    known_N = ~np.isnan(value_N)
    rating_of = [np.array(caption.ratings) for caption in judgements.captions]
    times_N = np.array([len(ratings) for ratings in rating_of])

    def taus(repeat_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores and ratings of the captions with a value, each as often as ``repeat_N`` says."""
        take_N = np.flatnonzero(known_N & (times_N > 0))
        take_M = np.repeat(take_N, repeat_N[take_N])
        if not len(take_M):
            return np.zeros(0), np.zeros(0)
        return np.repeat(value_N[take_M], times_N[take_M]), np.concatenate([rating_of[row] for row in take_M])

    scores, ratings = taus(np.ones(len(value_N), int))
    rated = bool(judgements.ratings) and len(scores) > 1
    whole = MetricAgreement(
        tau_b=100 * kendall_tau_b(scores, ratings) if rated else None,
        tau_c=100 * kendall_tau_c(scores, ratings) if rated else None,
        spearman=100 * spearman(scores, ratings) if rated else None,
        accuracy=_accuracies(value_N, judgements),
        n=int(known_N.sum()),
    )
    if not resamples:
        return whole

    def printed(repeat_N: np.ndarray) -> float:
        if judgements.tau:
            return 100 * TAUS[judgements.tau](*taus(repeat_N))
        return _accuracies(value_N, judgements, repeat_N)[ALL]

    low, high = _interval(judgements, printed, resamples, seed)
    return MetricAgreement(whole.tau_b, whole.tau_c, whole.spearman, whole.accuracy, whole.n, low, high)


def _accuracies(value_N: np.ndarray, judgements: Judgements, repeat_N: np.ndarray | None = None) -> dict[str, float]:
    """Percent by category, then their mean; a pair with a caption that has no value is left out."""
    found: dict[str, float] = {}
    for category in dict.fromkeys(pair.category for pair in judgements.pairs):
        rows = [pair for pair in judgements.pairs if pair.category == category]
        better = np.array([value_N[pair.better] for pair in rows])
        worse = np.array([value_N[pair.worse] for pair in rows])
        tied = np.array([pair.tied for pair in rows])
        better, worse = np.where(tied, 0.0, better), np.where(tied, 0.0, worse)
        keep = np.flatnonzero(~np.isnan(better + worse))
        if repeat_N is not None:
            keep = np.repeat(keep, [repeat_N[rows[place].better] for place in keep])
        found[category] = 100 * pair_accuracy(better[keep], worse[keep])
    if not found:
        return {}
    mean = float(np.mean(list(found.values())))
    return {ALL: mean} if list(found) == [""] else {**found, ALL: mean}


def _interval(
    judgements: Judgements, statistic: Callable[[np.ndarray], float], resamples: int, seed: int
) -> tuple[float, float]:
    """Pictures are resampled, with all of their captions."""
    names = list(dict.fromkeys(caption.picture for caption in judgements.captions))
    place = {name: number for number, name in enumerate(names)}
    picture_N = np.array([place[caption.picture] for caption in judgements.captions])
    values = [
        statistic(weight_K[picture_N].astype(int))
        for weight_RK in bootstrap_weights(len(names), resamples, seed)
        for weight_K in weight_RK
    ]
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


def _printed(found: MetricAgreement, tau: str) -> float | None:
    return {"b": found.tau_b, "c": found.tau_c}.get(tau, found.accuracy.get(ALL))


# ``tellapart study judges``: a file of human judgements to a table of metrics.


def agreement_with_people(
    file: Path,
    references: Sequence[Path] = (),
    layout: str | None = None,
    metrics: Sequence[str] | None = None,
    *,
    data: str | None = None,
    scorer: str | None = None,
    synonyms: Path | None = None,
    judge: JudgeInputs | None = None,
    resamples: int = 0,
    seed: int = 0,
) -> AgreementTable:
    """Read judgements and measure metrics against them (`measure_agreement`). Raises `UsageError`.

    ``synonyms``: of objects, for CHAIR and facts. ``judge``: a model behind a server, for metrics such as CLAIR.
    """
    if scorer is not None and data is None:
        raise UsageError("a scorer needs pictures; add --data SPEC")
    judgements = read_judgements(file, layout, references)
    if data is not None:
        context, notes = _with_pictures(judgements, data, scorer)
    else:
        own = [list(row.references) for row in judgements.captions]
        context, notes = EvalContext([str(row) for row in range(len(own))], None, own), []
    context.inputs = EvalInputs(synonyms=read_object_inputs(synonyms, None)[0], judge=(judge or JudgeInputs()).open())
    found = measure_agreement(judgements, metrics, context=context, resamples=resamples, seed=seed)
    found.notes += notes
    if note := context.long_note():
        found.notes.append(note)
    if context.inputs.judge is not None:
        found.notes += context.loaded_judge.notes()
    return found


def _with_pictures(judgements: Judgements, data: str, scorer: str | None) -> tuple[EvalContext, list[str]]:
    """A context with a picture for each of the judged captions, and notes. Raises `UsageError` where one is missing."""
    dataset = open_data(data)
    known = {name: item for item in dataset for name in _names(item.id, item.picture.name)}
    rows = {
        row.picture: next((known[n] for n in _names(row.picture) if n in known), None) for row in judgements.captions
    }
    if lacking := [name for name, item in rows.items() if item is None]:
        raise UsageError(
            f"{len(lacking):,} of {len(rows):,} judged pictures are not in the data ({preview_ids(lacking)}); "
            "give the data set that the judgements are of"
        )
    items = {item.id: item for item in rows.values() if item is not None}
    distinct = list(items.values())
    notes: list[str] = []
    models, readable = load_scorers([scorer] if scorer else [], distinct, notes)
    if readable is not None and len(readable) < len(distinct):
        raise UsageError(f"{len(distinct) - len(readable):,} judged pictures cannot be read; give whole pictures")
    item_N = [rows[row.picture] for row in judgements.captions]
    # Ids are those of captions: a picture has one row for each.
    own = [replace(item, id=f"{place}") for place, item in enumerate(item_N) if item is not None]
    references = [list(row.references) for row in judgements.captions]
    ids = [item.id for item in own]
    if not models:
        return EvalContext(ids, own, references), notes
    place = {item.id: row for row, item in enumerate(distinct)}
    feature_ND = np.asarray(models[0][1])[[place[item.id] for item in item_N if item is not None]]
    return EvalContext(ids, own, references, models[0][0], feature_ND), notes


def _names(*names: str) -> list[str]:
    files = [PurePosixPath(name.replace("\\", "/")).name for name in names]
    return list(dict.fromkeys([*names, *files, *(file.rpartition(".")[0] or file for file in files)]))
