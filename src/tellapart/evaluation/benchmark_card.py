"""Writes a benchmark's card: what it contains, how similar its pictures are, and how human captions score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.bags.file import Bag, BagsFile, check_known
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_sets import whole_sets
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


COLUMNS = ("bag", "bags", "pictures", "α least", "10%", "median", "90%", "most", "scorer’s R@1", "n", "chance")
EXAMPLE_TITLES = ("Most similar", "Median", "Least similar")


@dataclass(frozen=True)
class SizeFacts:
    """The bags of one size, and how often the scorer retrieves their pictures, given human captions."""

    size: int
    bags: list[Bag]
    human: Interval | None

    @property
    def pictures(self) -> int:
        """Returns the number of different pictures."""
        return len({id_ for bag in self.bags for id_ in bag.ids})

    @cached_property
    def alpha_M(self) -> np.ndarray:
        """Returns the known similarities."""
        return np.array([bag.similarity for bag in self.bags if np.isfinite(bag.similarity)])

    @property
    def quantiles(self) -> dict[str, float]:
        """Returns quantiles of the similarity, which are NaN if no similarity is known."""
        shares = {"least": 0, "10%": 0.1, "median": 0.5, "90%": 0.9, "most": 1}
        value_Q = np.quantile(self.alpha_M, list(shares.values())) if len(self.alpha_M) else np.full(5, np.nan)
        return {name: round(float(value), 4) for name, value in zip(shares, value_Q, strict=True)}

    @cached_property
    def histogram(self) -> list[tuple[float, int]]:
        """Returns each bin's lower edge and number of bags. The bins of the similarity are equally wide."""
        none = np.zeros(BINS, int), np.zeros(BINS + 1)
        counts, edges = np.histogram(self.alpha_M, BINS) if len(self.alpha_M) else none
        return list(zip(edges[:-1].round(4).tolist(), counts.tolist(), strict=True))

    @property
    def chance(self) -> float:
        """Returns the recall of a random pick, in percent."""
        return 100 / self.size

    @cached_property
    def examples(self) -> list[Bag]:
        """Returns the most similar, the median and the least similar bag."""
        order = np.argsort([-np.nan_to_num(bag.similarity) for bag in self.bags], kind="stable")
        places = dict.fromkeys(int(order[place]) for place in (0, len(order) // 2, len(order) - 1))
        return [self.bags[place] for place in places]

    def cells(self) -> list[str]:
        """Returns a table row with the columns in `COLUMNS`."""
        own = self.human
        human = "–" if own is None else f"{own.value:.1f} [{own.low:.1f}, {own.high:.1f}]"
        alphas = ["–" if np.isnan(value) else f"{value:.3f}" for value in self.quantiles.values()]
        n = "–" if own is None else f"{own.n:,}"
        counts = [str(self.size), f"{len(self.bags):,}", f"{self.pictures:,}"]
        return [*counts, *alphas, human, n, f"{self.chance:.1f}"]


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
        sizes = [
            {
                "size": own.size,
                "bags": len(own.bags),
                "pictures": own.pictures,
                "similarity": own.quantiles,
                "human": own.human and own.human.value,
                "chance": own.chance,
            }
            for own in self.sizes
        ]
        origin = {"pictures": header.pictures, "scorer": header.scorer, "fingerprint": header.fingerprint}
        return {**origin, "sizes": sizes}


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
    texts = _human_features(scorer, items, used)
    sizes = []
    for size, bags in file.of_size().items():
        sets, human = whole_sets([[row_of[id_] for id_ in bag.ids] for bag in bags]), None
        if texts:
            hits = [retrieve(sets, text_ND, image_ND).hit(1) for text_ND in texts]
            questions_N = sets.questions(len(image_ND))
            unit_N = sets.units(len(image_ND))  # pictures in a bag compete with each other, so they are dependent
            human = mean_interval(100 * np.mean(hits, axis=0), weight_N=questions_N, unit_N=unit_N, resamples=1000)
        sizes.append(SizeFacts(size, bags, human))
    return Card(name, file, sizes, {items[row].id: items[row] for row in used}, licence or NO_LICENCE, repeat)


def _human_features(scorer: Scorer, items: Sequence[Item], used: Sequence[int]) -> list[np.ndarray]:
    """Returns one N×D array with the features of each picture's first human caption, one for the second captions, and
    so on, up to five. The list is empty if a picture has no caption.
    """
    references = [items[row].references for row in used]
    if not all(references):
        return []
    found = []
    for k in range(min(REFERENCES, max(map(len, references), default=0))):
        used_ND = scorer.text_features([own[k % len(own)] for own in references]).cpu().numpy()
        text_ND = np.zeros((len(items), used_ND.shape[1]), np.float32)
        text_ND[used] = used_ND
        found.append(text_ND)
    return found


def facts(card: Card) -> dict[str, str]:
    """Returns the facts at the top of a card, by name."""
    header = card.file.header
    left_out = ", ".join(f"{count:,} {what}" for what, count in header.left_out.items())
    similarity = {
        "query": "mean cosine between the first picture and the others",
        "pairs": "mean cosine over all pairs",
    }
    whose = (
        "no two pictures in a bag have"
        if header.max_cosine_of == "pairs"
        else "no picture has, with the first picture in its bag,"
    )
    optional = {
        "near-duplicates": header.max_cosine is not None and f"{whose} a cosine above {header.max_cosine}",
        "least alike": header.min_cosine is not None
        and f"pictures in a bag have a cosine similarity of at least {header.min_cosine}",
        "search": header.recall is not None
        and f"approximate; finds {100 * header.recall:.1f}% of the exact neighbours",
    }
    return {
        "pictures": f"{header.pictures:,}" + (f"; excluded: {left_out}" if left_out else ""),
        "data": header.data,
        "scorer": f"{header.scorer} ({header.fingerprint})",
        "text side": header.captions or "none; only pictures were compared",
        "similarity of a bag": similarity[header.similarity],
        **{name: text for name, text in optional.items() if text},
        "licence": card.licence,
        "made by": f"tellapart {header.version}",
    }


def markdown(card: Card) -> str:
    """Formats the card as Markdown: facts, table, distributions, and the names of example pictures."""
    shown = facts(card) | ({"to repeat": card.repeat} if card.repeat else {})
    values = {"card": card, "facts": shown, "columns": COLUMNS, "recall_help": RECALL_HELP}
    return template(Path(__file__).parent / "card.txt").render(values, plain=_plain)


def _plain(text: str) -> str:
    """Escapes text for Markdown and HTML."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|").replace("`", "'")


def page(card: Card) -> str:
    """Formats the card as a self-contained HTML page in the style of the report, with escaped text and embedded
    pictures. The bags come first, then their similarity.
    """
    album = Album()
    shown = dict.fromkeys(id_ for own in card.sizes for bag in own.examples for id_ in bag.ids)
    return template(Path(__file__).parent / "card.html").render(
        card=card,
        titles=EXAMPLE_TITLES,
        pictures={id_: (card.items[id_], album.add_picture(card.items[id_].picture)) for id_ in shown},
        facts=facts(card),
        columns=COLUMNS,
        recall_help=RECALL_HELP,
        sprites=album.sprites(),
    )
