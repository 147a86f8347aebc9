"""``replication price``: the cost of a false claim, in omitted facts, for models that learn from captions.

Captions of pictures with two objects, which have ten facts (four of each object, their relation, the ground), are
written with an exact number of true and of false claims: `CELLS`, five numbers of omitted facts by five of false
claims. A false claim replaces a fact that the caption would otherwise omit, and its value occurs nowhere in the
picture; k of the fit is therefore the cost of one *added* false claim, in omitted facts. At each number of omissions,
all captions have the same number of words, padded with words that make no claim.

On the captions of each cell, two learners are trained from random weights on frozen features of the shipped captioner's
vision encoder: a retriever (contrastive) and a captioner (maximum likelihood). The outcomes, none of which was a
reward, are whether the retriever finds a picture by a true query, and whether the exact listener finds it by the
captioner's caption, sampled or greedy. The fit over cells is outcome = a − b·(omitted facts + k·false claims).

``--photos`` does the same for a retriever on Flickr8k: nouns of its training captions are omitted or swapped.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replication.lab import code_versions, digest
from tellapart.boost.output import Output, record
from tellapart.boost.types import Boosted
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.language.words import tagged_words
from tellapart.metrics.statistics import LEVEL, RESAMPLES
from tellapart.models.devices import resolve_device
from tellapart.scenes import vocabulary as v
from tellapart.scenes.contents import holds
from tellapart.scenes.truth import count_claims, listener_probabilities
from tellapart.scenes.world import Scene, Scenes
from tellapart.scorers import load_scorer
from tellapart.training.runs import train
from tellapart.utils.files import replace_text
from tellapart.utils.messages import Progress, json_value
from tellapart.utils.rng import RandomStream

if TYPE_CHECKING:
    from replication.price_learners import Pictures
    from tellapart.recipe.schema import Recipe

FOLDER = Path("runs") / "price"
VERSION = 1  # of the captions, the learners and their settings: outcomes of another one are not read
FACTS = 10  # of a picture with two objects
FALSE, OMITTED = (0, 1, 2, 3, 4), (4, 5, 6, 7, 8)
QUERY_FACTS = 6  # as many as the fullest training captions state
TRAIN, TEST = 3000, 500  # pictures with two objects
LEARNERS = {  # and what is asked of each
    "retriever": "R@1 by true queries",
    "sampled": "exact listener's accuracy, of captions that the captioner samples",
    "greedy": "exact listener's accuracy, of its greedy captions",
}
TEMPERATURES = {"sampled": 1.0, "greedy": 0.0}
SLOTS = (*((field, of) for of in (0, 1) for field in v.FIELDS[:4]), ("relation", -1), ("ground", -1))
# What fills up: words without a claim. The longest ground and relation take three words each, a shape that of "thing".
FILLER = ("as", "seen", "here", "in", "this", "picture", "where", "all", "of", "it", "is", "shown")
WORDS_OF = tuple(sorted((1,) * 6 + (0,) * 2 + (2, 3), reverse=True))


@dataclass(frozen=True, order=True)
class Cell:
    """Number of false claims in each training caption, and number of facts of the picture that it omits."""

    false: int
    omitted: int

    def __post_init__(self) -> None:
        """Checks that the false claims fit among the omitted facts."""
        if not (0 <= self.false <= self.omitted <= FACTS):
            raise UsageError(f"cell {self.name}: expected 0 ≤ false ≤ omitted ≤ {FACTS}, such as 2-6")

    @property
    def name(self) -> str:
        """Returns the cell in the format of ``--cells``: "2-6"."""
        return f"{self.false}-{self.omitted}"

    @property
    def true(self) -> int:
        return FACTS - self.omitted

    @property
    def precision(self) -> float:
        return self.true / (self.true + self.false) if self.true else 0.0

    @property
    def recall(self) -> float:
        return self.true / FACTS

    @property
    def words(self) -> int:
        """Returns the number of words of every caption: that of the longest with the most false claims."""
        return 5 + sum(WORDS_OF[: min(FACTS, self.true + FALSE[-1])])


CELLS = tuple(Cell(false, omitted) for omitted, false in itertools.product(OMITTED, FALSE))


def parse_cells(text: str | None) -> tuple[Cell, ...]:
    """Parses cells ``FALSE-OMITTED,…``; None: all of `CELLS`. Raises `UsageError`."""
    if text is None:
        return CELLS
    try:
        return tuple(dict.fromkeys(Cell(*map(int, part.split("-"))) for part in text.split(",")))
    except (ValueError, TypeError):
        raise UsageError(f"--cells is '{text}'; expected FALSE-OMITTED with commas, such as 0-4,4-4,0-8") from None


# Captions with an exact number of true and of false claims.


def write_caption(scene: Scene, cell: Cell, seed: int = 0) -> str:
    """Captions a picture with two objects: `Cell.true` true claims, `Cell.false` false ones, `Cell.words` words.

    Which facts are stated is drawn once for a picture and a seed: with more omissions fewer of the same facts are
    stated, and with more falsehoods the same ones remain true.
    """
    order = RandomStream("price", scene.id, seed).sample(SLOTS, FACTS)
    true, false = set(order[: cell.true]), set(order[FACTS - cell.false :])
    text = _text(scene, true, false, RandomStream("price false", scene.id, seed))
    words = text.split()
    return " ".join([*words, *FILLER[: cell.words - len(words)]])


def write_query(scene: Scene) -> str:
    """Writes a true query with `QUERY_FACTS` facts of the picture, the same for all seeds."""
    true = set(RandomStream("price query", scene.id).sample(SLOTS, QUERY_FACTS))
    return _text(scene, true, set(), RandomStream())


Slots = set[tuple[str, int]]


def _text(scene: Scene, true: Slots, false: Slots, rng: RandomStream) -> str:
    kind, *order = scene.chain[0]
    said = {slot: _false_value(scene, slot[0], rng) for slot in SLOTS if slot in false}
    for slot in true:
        said[slot] = {"relation": str(kind), "ground": scene.ground}.get(slot[0]) or getattr(
            scene.objects[int(order[slot[1]])], slot[0]
        )

    def phrase(of: int) -> str:
        values = [said[name, of] for name in ("size", "colour", "texture") if (name, of) in said]
        words = " ".join([*values, said.get(("shape", of), "thing")])
        return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"

    between = said.get(("relation", -1), "and")
    ground = [v.GROUNDS[said["ground", -1]][0]] if ("ground", -1) in said else []
    return " ".join([phrase(0), between, phrase(1), *ground])


def _false_value(scene: Scene, slot: str, rng: RandomStream) -> str:
    """Draws a value that occurs nowhere in the picture; for a relation, one that holds in neither direction."""
    if slot == "ground":
        return rng.choice([name for name in v.GROUNDS if name != scene.ground])
    if slot == "relation":
        pairs = ((0, 1), (1, 0))
        kinds = [kind for kind in v.RELATIONS if kind != "between"]
        return rng.choice([kind for kind in kinds if not any(holds(kind, scene.objects, *pair) for pair in pairs)])
    table = {"shape": v.SHAPES, "colour": v.COLOURS, "size": v.SIZES, "texture": v.TEXTURES}[slot]
    there = {getattr(thing, slot) for thing in scene.objects}
    return rng.choice([value for value in table if value not in there])


def pictures_of(split: str, count: int) -> list[Scene]:
    """Returns the first ``count`` pictures with two objects in the claims' world; a third of all pictures have two."""
    world = Scenes(max(1000, 4 * count), seed=31, split=split, references=0)
    found = list(itertools.islice((scene for scene in world if len(scene.objects) == 2), count))
    if len(found) < count:
        raise UsageError(f"{len(found)} pictures of {split} have two objects; expected {count}")
    return found


# Outcomes of one cell and seed, per picture; stored in a file.


@dataclass(frozen=True)
class Outcome:
    """Results of learning from a cell's captions: N values each, on the same test pictures.

    found_N: by `LEARNERS`, 1 if the test picture was retrieved (for captions, the listener's probability of it).
    counts_N4: by decoding of the captioner, the true claims, claims, recalled facts and facts of each picture.
    """

    cell: Cell
    seed: int
    found_N: dict[str, np.ndarray]
    counts_N4: dict[str, np.ndarray]

    def to_json(self) -> dict[str, Any]:
        """Returns the stored form."""
        value: dict[str, Any] = json_value(
            {
                "found": {name: found_N.tolist() for name, found_N in self.found_N.items()},
                "counts": {name: counts_N4.tolist() for name, counts_N4 in self.counts_N4.items()},
            },
            4,
        )
        return value


def outcome_file(cell: Cell, seed: int, sizes: tuple[int, int], steps: int, folder: Path) -> Path:
    """Returns the file that stores the outcome; its name depends on everything that determines the outcome."""
    key = digest(f"{VERSION} {sizes} {steps} {code_versions('scenes', 'mle', 'contrastive')}")
    return folder / f"{cell.name}-s{seed}-{key}.json"


def read_outcome(path: Path, cell: Cell, seed: int) -> Outcome:
    """Reads the result of `Outcome.to_json`."""
    value = json.loads(path.read_text(encoding="utf-8"))
    found = {name: np.array(rows, dtype=float) for name, rows in value["found"].items()}
    return Outcome(cell, seed, found, {name: np.array(rows, dtype=float) for name, rows in value["counts"].items()})


def measure_cell(cell: Cell, seed: int, pictures: Pictures, steps: int) -> Outcome:
    """Trains both learners on the captions of a cell, and evaluates them."""
    from replication.price_learners import train_captioner, train_retriever

    captions = [write_caption(scene, cell, seed) for scene in pictures.train]
    queries = [write_query(scene) for scene in pictures.test]
    found = {"retriever": train_retriever(captions, queries, pictures, seed, steps).hits(queries)}
    captioner = train_captioner(captions, pictures, seed, steps)
    counts = {}
    for decoding, temperature in TEMPERATURES.items():
        texts = captioner.write(temperature, seed)
        claims = [count_claims(text, scene) for text, scene in zip(texts, pictures.test, strict=True)]
        counts[decoding] = np.array([(c.correct, c.claims, c.recalled, c.attributes) for c in claims], dtype=float)
        pairs = zip(texts, pictures.families, strict=True)
        found[decoding] = np.array([listener_probabilities(text, family)[0] for text, family in pairs])
    return Outcome(cell, seed, found, counts)


# The exchange rate.


@dataclass(frozen=True)
class Price:
    """Exchange rate: one false claim costs ``k`` omitted facts; 95 % intervals over seeds, cells and test pictures.

    omission: the cost of one omitted fact, in points of the outcome. spread: R² of the fit over the cells' means.
    determined: False if the interval of ``omission`` contains zero, so that k is undetermined.
    """

    k: float
    low: float
    high: float
    omission: float
    omission_low: float
    omission_high: float
    falsehood: float
    spread: float

    @property
    def determined(self) -> bool:
        return self.omission_low > 0

    @property
    def threshold(self) -> float:
        """Returns the probability of being true above which a claim is worth stating: k / (1 + k)."""
        return max(0.0, self.k) / (1 + max(0.0, self.k))

    def to_json(self) -> dict[str, Any]:
        """Returns all figures; ``k`` is null if it is not determined."""
        value: dict[str, Any] = json_value(
            {
                "k": self.k if self.determined else float("nan"),
                "low": self.low,
                "high": self.high,
                "omission": self.omission,
                "omission_low": self.omission_low,
                "omission_high": self.omission_high,
                "falsehood": self.falsehood,
                "r2": self.spread,
                "threshold": self.threshold if self.determined else float("nan"),
            }
        )
        return value


def check_cells(cells: Sequence[Cell]) -> np.ndarray:
    """Returns the design matrix C×3 of the fit. Raises `UsageError` if the cells do not differ in both numbers."""
    design_C3 = np.array([(1.0, -cell.omitted, -cell.false) for cell in cells])
    if np.linalg.matrix_rank(design_C3) < 3:
        raise UsageError("the cells must differ in false claims and in omitted facts; expected at least 0-4,4-4,0-8")
    return design_C3


def fit_price(
    cells: Sequence[Cell], value_SCN: np.ndarray, resamples: int = RESAMPLES, *, draw_cells: bool = True
) -> Price:
    """Fits outcome = a − b·(omitted + k·false) to the cells' means by least squares, S seeds, C cells, N pictures.

    ``value_SCN`` is in percent. Resamples draw seeds, pictures and, with ``draw_cells``, cells with replacement. Raises
    `UsageError` as `check_cells`.
    """
    design_C3 = check_cells(cells)
    seeds, count, pictures = value_SCN.shape
    mean_C = value_SCN.mean((0, 2))
    a, omission, falsehood = np.linalg.lstsq(design_C3, mean_C, rcond=None)[0]
    rest = mean_C - design_C3 @ np.array([a, omission, falsehood])
    total = float(((mean_C - mean_C.mean()) ** 2).sum())
    rng = np.random.default_rng([VERSION, seeds, count, pictures])
    drawn: list[np.ndarray] = []
    while len(drawn) < resamples:
        cell_C = rng.integers(count, size=count) if draw_cells else np.arange(count)
        if np.linalg.matrix_rank(design_C3[cell_C]) < 3:
            continue
        weight_N = np.bincount(rng.integers(pictures, size=pictures), minlength=pictures) / pictures
        seed_S = rng.integers(seeds, size=seeds)
        drawn_C = (value_SCN[seed_S].mean(0) @ weight_N)[cell_C]
        drawn.append(np.linalg.lstsq(design_C3[cell_C], drawn_C, rcond=None)[0])
    drawn_R3 = np.array(drawn)
    ends = (0.5 - LEVEL / 2, 0.5 + LEVEL / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        k, k_R = np.divide(falsehood, omission), drawn_R3[:, 2] / drawn_R3[:, 1]
    finite_R = k_R[np.isfinite(k_R)]
    low, high = np.quantile(finite_R, ends) if len(finite_R) else (np.nan, np.nan)
    omission_low, omission_high = np.quantile(drawn_R3[:, 1], ends)
    spread = 1 - float((rest**2).sum()) / total if total else 1.0
    return Price(*map(float, (k, low, high, omission, omission_low, omission_high, falsehood, spread)))


def run_price(
    seeds: Sequence[int],
    cells: Sequence[Cell] = CELLS,
    *,
    sizes: tuple[int, int] = (TRAIN, TEST),
    steps: int | None = None,
    place: bool = False,
    folder: Path = FOLDER,
) -> dict[str, Any]:
    """Trains cells not stored in ``folder`` and fits the price; returns ``{"cells": […], "prices": {LEARNER: …}, …}``.

    Interrupted runs resume at the cell where they stopped. sizes: numbers of training and test pictures.
    place: also `place_systems`.
    """
    from replication.price_learners import STEPS, Pictures

    steps = steps or STEPS
    check_cells(cells)
    wanted = [(cell, seed) for seed in seeds for cell in cells]
    paths = {(cell, seed): outcome_file(cell, seed, sizes, steps, folder) for cell, seed in wanted}
    left = [one for one in wanted if not paths[one].is_file()]
    pictures: Pictures | None = None
    with Progress(len(wanted), "cells", done=len(wanted) - len(left)) as progress:
        for cell, seed in left:
            pictures = pictures or Pictures.load(pictures_of("train", sizes[0]), pictures_of("test", sizes[1]))
            path = paths[cell, seed]
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, json.dumps(measure_cell(cell, seed, pictures, steps).to_json()))
            progress.advance()
    found = {(cell, seed): read_outcome(path, cell, seed) for (cell, seed), path in paths.items()}
    prices = {}
    for learner in LEARNERS:
        value_SCN = 100 * np.array([[found[cell, seed].found_N[learner] for cell in cells] for seed in seeds])
        prices[learner] = fit_price(cells, value_SCN).to_json()
    systems = place_systems(seeds) if place else {}
    rows = [_row(cell, [found[cell, seed] for seed in seeds]) for cell in cells]
    found_all = {"cells": rows, "prices": prices, "systems": systems}
    return {**found_all, "seeds": list(seeds), "pictures": list(sizes), "steps": steps}


def _row(cell: Cell, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Returns one cell as JSON: the captions' counts and the outcomes, with intervals over seeds and pictures."""
    learned = {}
    for decoding in TEMPERATURES:
        correct, claims, recalled, facts = np.mean([one.counts_N4[decoding].sum(0) for one in outcomes], axis=0)
        learned[decoding] = {"precision": 100 * correct / claims if claims else None, "recall": 100 * recalled / facts}
    row: dict[str, Any] = json_value(
        {
            "cell": cell.name,
            "false": cell.false,
            "omitted": cell.omitted,
            "precision": 100 * cell.precision,
            "recall": 100 * cell.recall,
            "words": cell.words,
            **{name: _interval([100 * one.found_N[name] for one in outcomes]) for name in LEARNERS},
            "learned": learned,
        },
        4,
    )
    return row


def _interval(value_SN: Sequence[np.ndarray]) -> dict[str, float]:
    """Returns the mean with its 95 % interval over seeds and pictures."""
    values_SN = np.array(value_SN)
    rng = np.random.default_rng([VERSION, *values_SN.shape])
    seed_RS = rng.integers(len(values_SN), size=(RESAMPLES, len(values_SN)))
    of_pictures_RN = rng.multinomial(values_SN.shape[1], np.full(values_SN.shape[1], 1 / values_SN.shape[1]), RESAMPLES)
    drawn_R = np.einsum("rn,rn->r", values_SN[seed_RS].mean(1), of_pictures_RN) / values_SN.shape[1]
    low, high = np.quantile(drawn_R, (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    return {"value": float(values_SN.mean()), "low": float(low), "high": float(high)}


# Photos: what a false noun costs a retriever.

PHOTO_SCORER = "photos_scorer"  # the recipe: heads on pretrained encoders
# Human captions; captions with one or two nouns left out; captions with one or two nouns swapped.
PHOTO_CELLS = (Cell(0, 0), Cell(0, 1), Cell(1, 1), Cell(0, 2), Cell(2, 2))
CANDIDATES = 100  # test photos per retrieval set


def noun_texts(caption: str) -> list[str]:
    """Returns the nouns of a caption in lower case, found by the tagger HanTa."""
    return [caption[word.start : word.end].lower() for word in tagged_words(caption) if word.kind == "head"]


def change_nouns(caption: str, cell: Cell, said: Set[str], pool: Sequence[str], rng: RandomStream) -> str:
    """Changes up to ``cell.omitted`` nouns of the caption, of which ``cell.false`` are swapped.

    Omitted nouns become "thing". Swapped nouns become a noun of the ``pool`` that is not in ``said``, the nouns of the
    photo's own captions; it may still be true ("person" for "man"), which biases k downwards. Raises `UsageError` if
    the pool has no other noun.
    """
    if cell.false and said >= set(pool):
        raise UsageError("no noun of the captions is another photo's alone; expected more photos")
    nouns = [word for word in tagged_words(caption) if word.kind == "head"]
    chosen = rng.sample(range(len(nouns)), min(cell.omitted, len(nouns)))
    for place in sorted(chosen, reverse=True):
        swapped = chosen.index(place) < cell.false
        other = rng.choice(pool) if swapped else "thing"
        while swapped and other in said:
            other = rng.choice(pool)
        caption = caption[: nouns[place].start] + other + caption[nouns[place].end :]
    return caption


def write_photo_captions(data: str, cell: Cell, folder: Path) -> Path:
    """Writes the photos of ``data`` with the captions of a cell to a file in ``folder``, and returns its path."""
    path = folder / f"photos-{cell.name}-{digest(f'{VERSION} {data}')}.jsonl"
    if path.is_file():
        return path
    items = list(open_data(data))
    pool = [noun for item in items for text in item.references for noun in noun_texts(text)]
    with Output.open(path, {"data": data, "cell": cell.name}) as output:
        for item in items:
            said = {noun for text in item.references for noun in noun_texts(text)}
            texts = [
                change_nouns(text, cell, said, pool, RandomStream("price nouns", item.id, number))
                for number, text in enumerate(item.references)
            ]
            output.write(record(Boosted(item, {}), "", path) | {"captions": texts})
    return path


def price_on_photos(settings: Sequence[str] = (), folder: Path = FOLDER) -> dict[str, Any]:
    """Measures k for a retriever trained on Flickr8k captions: ``{"cells": […], "price": {…}, "n", "candidates"}``.

    For each of `PHOTO_CELLS` the recipe's scorer is trained on captions of the training photos with as many nouns left
    out or false; the outcome is R@1 of test photos by people's first caption, unchanged. settings: ``KEY=VALUE``, as
    ``--set`` has them. What is trained already is not trained again.
    """
    from replication import cores
    from replication.photos import Job, train_jobs

    recipe = Job(PHOTO_SCORER, tuple(settings)).recipe()
    files = [write_photo_captions(str(recipe.data.train), cell, folder) for cell in PHOTO_CELLS]
    jobs = [Job(PHOTO_SCORER, (*settings, f"data.train={file}"), evaluate=False) for file in files]
    train_jobs(jobs, cores() if resolve_device("auto").type == "cpu" else 1)
    found_CN = np.array([100.0 * _found_photos(job.recipe(), str(recipe.data.test)) for job in jobs])
    price = fit_price(PHOTO_CELLS, found_CN[None], draw_cells=False).to_json()
    cells = [
        {"cell": cell.name, "false": cell.false, "omitted": cell.omitted, "retriever": _interval([found_N])}
        for cell, found_N in zip(PHOTO_CELLS, found_CN, strict=True)
    ]
    return {"cells": cells, "price": price, "n": found_CN.shape[1], "candidates": CANDIDATES}


def _found_photos(recipe: Recipe, data: str) -> np.ndarray:
    """Returns found_N: whether its first caption retrieves each test photo among a hundred, in data order."""
    scorer, items = load_scorer(str(train(recipe, resume=True, evaluate=False).folder)), list(open_data(data))
    image_ND = np.asarray(FeatureStore().features(items, scorer.encoder))
    text_ND = scorer.text_features([item.references[0] for item in items]).cpu().numpy()
    found = []
    for start in range(0, len(items), CANDIDATES):
        part = slice(start, start + CANDIDATES)
        score_CC = text_ND[part] @ image_ND[part].T
        found.append(score_CC.diagonal()[:, None] >= score_CC)
    return np.concatenate([better.all(1).astype(float) for better in found])


# Systems on the exchange rate: their omitted facts and false claims.

PLACED = 200  # test pictures
SYSTEMS = {  # by name, the row of `replication.tradeoff` and how it decodes
    "start": ("start", "beams"),
    "start, consensus of 8": ("start", "consensus"),
    "start, full description": ("described", "beams"),
    "self-retrieval": ("sr", "beams"),
    "self-distillation": ("truthful", "confident"),
}


def cost(system: Mapping[str, float], price: Mapping[str, Any]) -> float | None:
    """Returns the cost of a system's captions in omitted facts, omitted + k·false; None if k is not determined."""
    return None if price["k"] is None else system["omitted"] + price["k"] * system["false"]


def place_systems(seeds: Sequence[int], runs: Path | None = None) -> dict[str, dict[str, float]]:
    """Measures omitted facts and false claims per caption of available systems: shipped captioner, trained arms.

    runs: the folder of ``replication tradeoff``; its arms are included if they are trained on all of ``seeds``.
    """
    from replication import tradeoff
    from replication.arms import TEST_SETS
    from replication.tradeoff_arms import DECODINGS, TEST_SET, arms
    from tellapart.captioners import generate_captions, load_captioner
    from tellapart.features.store import FeatureStore
    from tellapart.models.decoding import Decoding
    from tellapart.utils.rng import ItemSeeds

    lab = tradeoff.ArmsLab(runs or tradeoff.FOLDER, arms(), {TEST_SET: TEST_SETS[TEST_SET]}, DECODINGS)
    scenes = pictures_of("test", PLACED)
    items = [scene.item() for scene in scenes]
    decodings = {**DECODINGS, "consensus": Decoding(kind="consensus", candidates=8, temperature=0.6)}
    found = {}
    for name, (arm, decoding) in SYSTEMS.items():
        if arm in ("start", "described"):
            models = ["scenes"]
        elif all(lab.run_of(arm, seed).finished for seed in seeds):
            models = [lab.model(arm, seed) for seed in seeds]
        else:
            continue
        counts = []
        for model in models:
            captioner = load_captioner(model, "cpu", "fp32")
            if arm == "described":
                captioner.set_prompt("in this picture")
            visual = np.asarray(FeatureStore().features(items, captioner.encoder))
            drawn = ItemSeeds(tuple(item.id for item in items), 0)
            texts = generate_captions(captioner, visual, decodings[decoding], seeds=drawn)
            counts += [count_claims(text, scene) for text, scene in zip(texts, scenes, strict=True)]
        omitted, false = ([c.attributes - c.recalled for c in counts], [c.claims - c.correct for c in counts])
        found[name] = {"omitted": float(np.mean(omitted)), "false": float(np.mean(false))}
    return found


def format_interval(one: dict[str, float]) -> str:
    """Formats value and interval: "39.0 [35.1, 43.2]"."""
    return "{value:.1f} [{low:.1f}, {high:.1f}]".format(**one)


def price_line(learner: str, price: dict[str, Any]) -> str:
    """Returns the exchange rate of a learner in one line."""
    costs = (
        f"{learner} ({LEARNERS[learner]}): an omitted fact costs {price['omission']:.2f} points "
        f"[{price['omission_low']:.2f}, {price['omission_high']:.2f}], a false claim {price['falsehood']:.2f}"
    )
    if price["k"] is None:
        return f"{costs}; k is not determined, for the interval of the first holds 0"
    between = "[{low:.2f}, {high:.2f}]".format(**price)
    return (
        f"{costs}; k = {price['k']:.2f} {between}, R² {price['r2']:.2f}; worth stating from {price['threshold']:.2f} on"
    )
