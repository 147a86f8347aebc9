"""Writes a benchmark's card: what it contains, how similar its pictures are, and how human captions score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.bags.file import Bag, BagsFile, check_known
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_sets import CandidateSets, whole_sets
from tellapart.evaluation.retrieval import retrieve
from tellapart.metrics.intervals import Interval, mean_interval
from tellapart.report.album import Album
from tellapart.report.template import template
from tellapart.types import Item

if TYPE_CHECKING:
    from tellapart.scorers import Scorer

BINS = 10  # bins of a histogram
REFERENCES = 5  # maximum number of references per picture for human recall
RECALL_HELP = (
    "Scorer’s R@1: how often the scorer that mined the bags ranks a picture first in its bag, given a human "
    "caption (mean over up to five references per picture, with the 95% interval over n "
    "questions). It measures the scorer on human captions; people were not asked to distinguish the pictures."
)
NO_LICENCE = "Not stated. Add it with --licence: who may use these pictures?"


@dataclass(frozen=True)
class SizeFacts:
    """Facts about the bags of one size. ``counts`` is a histogram of their similarity, with `BINS` equal bins between
    ``edges[0]`` and ``edges[-1]``.
    """

    size: int
    bags: int
    pictures: int
    quantiles: tuple[float, ...]  # minimum, 10%, median, 90%, maximum
    counts: tuple[int, ...]
    edges: tuple[float, ...]
    human: Interval | None
    chance: float
    examples: tuple[Bag, ...]  # most similar, median, least similar


@dataclass(frozen=True)
class Card:
    """The content of a card. `markdown` and `page` format it."""

    name: str
    file: BagsFile
    sizes: list[SizeFacts]
    items: dict[str, Item]
    licence: str
    repeat: str

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"pictures", "scorer", "sizes": [{"size", "bags", "pictures", "similarity", "human",
        "chance"}]}``."""
        header = self.file.header
        return {
            "pictures": header.pictures,
            "scorer": header.scorer,
            "fingerprint": header.fingerprint,
            "sizes": [
                {
                    "size": own.size,
                    "bags": own.bags,
                    "pictures": own.pictures,
                    "similarity": dict(zip(("least", "10%", "median", "90%", "most"), own.quantiles, strict=True)),
                    "human": None if own.human is None else own.human.value,
                    "chance": own.chance,
                }
                for own in self.sizes
            ],
        }


def make_card(
    name: str,
    file: BagsFile,
    items: Sequence[Item],
    image_ND: np.ndarray,
    scorer: Scorer,
    *,
    licence: str = "",
    repeat: str = "",
) -> Card:
    """Computes a card for bags of ``items``. ``image_ND``: features from the scorer that mined the bags.

    Raises `UsageError` if a bag contains a picture that is not in ``items``, or if a different scorer mined the bags.
    """
    if file.header.fingerprint and file.header.fingerprint != scorer.fingerprint:
        raise UsageError(
            f"{name} was mined with {file.header.scorer} ({file.header.fingerprint[:8]}), but --scorer is another "
            f"model ({scorer.fingerprint[:8]}); pass the scorer that mined it"
        )
    row_of = {item.id: row for row, item in enumerate(items)}
    check_known(name, file.bags, row_of)
    used = sorted({row_of[id_] for bag in file.bags for id_ in bag.ids})
    texts = human_features(scorer, items, used)
    facts = [
        size_facts(size, bags, [[row_of[id_] for id_ in bag.ids] for bag in bags], image_ND, texts)
        for size, bags in file.of_size().items()
    ]
    return Card(name, file, facts, {items[row].id: items[row] for row in used}, licence or NO_LICENCE, repeat)


def human_features(scorer: Scorer, items: Sequence[Item], used: Sequence[int]) -> list[np.ndarray]:
    """Returns one N×D array with the features of each picture's first human caption, one for the second captions, and
    so on, up to five. The list is empty if a picture has no caption.
    """
    if not used or any(not items[row].references for row in used):
        return []
    found = []
    for k in range(min(REFERENCES, max(len(items[row].references) for row in used))):
        own = [items[row].references[k % len(items[row].references)] for row in used]
        own_ND = scorer.text_features(own).cpu().numpy()
        text_ND = np.zeros((len(items), own_ND.shape[1]), np.float32)
        text_ND[used] = own_ND
        found.append(text_ND)
    return found


def size_facts(
    size: int,
    bags: list[Bag],
    rows: list[list[int]],
    image_ND: np.ndarray,
    texts: list[np.ndarray],
) -> SizeFacts:
    sets: CandidateSets = whole_sets(rows)
    alpha_M = np.array([bag.similarity for bag in bags])
    known_M = alpha_M[np.isfinite(alpha_M)]
    quantiles = np.quantile(known_M, [0, 0.1, 0.5, 0.9, 1]) if len(known_M) else np.full(5, np.nan)
    counts, edges = np.histogram(known_M, BINS) if len(known_M) else (np.zeros(BINS, int), np.zeros(BINS + 1))
    human = None
    if texts:
        hits = [retrieve(sets, text_ND, image_ND).hit(1) for text_ND in texts]
        questions_N = sets.questions(len(image_ND))
        unit_N = sets.units(len(image_ND))  # pictures in a bag compete with each other, so they are dependent
        human = mean_interval(100 * np.mean(hits, axis=0), weight_N=questions_N, unit_N=unit_N, resamples=1000)
    order = np.argsort(-np.nan_to_num(alpha_M), kind="stable")
    examples = dict.fromkeys(int(order[place]) for place in (0, len(order) // 2, len(order) - 1))
    return SizeFacts(
        size,
        len(bags),
        len({row for members in rows for row in members}),
        tuple(round(float(value), 4) for value in quantiles),
        tuple(int(count) for count in counts),
        tuple(round(float(edge), 4) for edge in edges),
        human,
        100 / size,
        tuple(bags[place] for place in examples),
    )


def facts(card: Card) -> list[tuple[str, str]]:
    """Returns (name, text) of each fact at the top of a card."""
    header = card.file.header
    left_out = ", ".join(f"{count:,} {what}" for what, count in header.left_out.items())
    lines = [
        ("pictures", f"{header.pictures:,}" + (f"; excluded: {left_out}" if left_out else "")),
        ("data", header.data),
        ("scorer", f"{header.scorer} ({header.fingerprint})"),
        ("text side", header.captions or "none; only pictures were compared"),
        ("similarity of a bag", {"query": "mean cosine between the first picture and the others",
                                 "pairs": "mean cosine over all pairs"}[header.similarity]),
    ]  # fmt: skip
    if header.max_cosine is not None:
        whose = (
            "no two pictures in a bag have"
            if header.max_cosine_of == "pairs"
            else "no picture has, with the first picture in its bag,"
        )
        lines.append(("near-duplicates", f"{whose} a cosine above {header.max_cosine}"))
    if header.min_cosine is not None:
        lines.append(("least alike", f"pictures in a bag have a cosine similarity of at least {header.min_cosine}"))
    if header.recall is not None:
        lines.append(("search", f"approximate; finds {100 * header.recall:.1f}% of the exact neighbours"))
    lines += [("licence", card.licence), ("made by", f"tellapart {header.version}")]
    return lines + ([("to repeat", card.repeat)] if card.repeat else [])


COLUMNS = ("bag", "bags", "pictures", "α least", "10%", "median", "90%", "most", "scorer’s R@1", "n", "chance")


def cells(own: SizeFacts) -> list[str]:
    """Returns a table row with the columns in `COLUMNS`."""
    human = "–" if own.human is None else f"{own.human.value:.1f} [{own.human.low:.1f}, {own.human.high:.1f}]"
    alphas = ["–" if np.isnan(value) else f"{value:.3f}" for value in own.quantiles]
    n = "–" if own.human is None else f"{own.human.n:,}"
    return [str(own.size), f"{own.bags:,}", f"{own.pictures:,}", *alphas, human, n, f"{own.chance:.1f}"]


def markdown(card: Card) -> str:
    """Formats the card as Markdown: facts, table, distributions, and the names of example pictures."""
    values = {"card": card, "facts": facts(card), "columns": COLUMNS, "cells": cells, "recall_help": RECALL_HELP}
    return template(Path(__file__).parent / "card.txt").render(values, plain=_plain)


def _plain(text: str) -> str:
    """Escapes text for Markdown and HTML."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|").replace("`", "'")


# The card as an HTML page in the style of the report. The bags come first, then their similarity.

EXAMPLE_TITLES = ("Most similar", "Median", "Least similar")


def page(card: Card) -> str:
    """Formats the card as a self-contained HTML page, with escaped text and embedded pictures."""
    album = Album()
    shown = dict.fromkeys(id_ for own in card.sizes for bag in own.examples for id_ in bag.ids)
    pictures = {id_: (card.items[id_], album.add_picture(card.items[id_].picture)) for id_ in shown}
    return template(Path(__file__).parent / "card.html").render(
        card=card,
        titles=EXAMPLE_TITLES,
        pictures=pictures,
        facts=[(name, text) for name, text in facts(card) if name != "to repeat"],
        columns=COLUMNS,
        recall_help=RECALL_HELP,
        cells=cells,
        sprites=album.sprites(),
    )
