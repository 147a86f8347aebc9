"""``replication signals``: signals that detect false words of captions, by the position of the word.

A captioner captions each picture; each content word is judged true or false and has a value of each signal. A signal's
quality is the area under its ROC curve for false words (chance: 0.5). On `scenes`, a word is false if its claim is
false by the ground truth. Photos have no ground truth: a noun counts as false if no reference contains the word, its
stem, or a word that shares a WordNet synset (METEOR's tables). `EYE` has nouns of captions of ``photos_mle`` that were
checked against the photo by eye.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tellapart.captioners import Captioner, load_captioner
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.features.views import make_view
from tellapart.language.phrases import Description
from tellapart.language.words import content_words, words_of_tokens
from tellapart.metrics.ptb import ptb_tokenize
from tellapart.models.decoding import Decoding
from tellapart.rewards.consensus import distinct_words
from tellapart.rewards.speaker import Speaker, mutual_information, word_log_probs
from tellapart.scenes.truth import mark_caption
from tellapart.types import Batch, Item, Rollout
from tellapart.utils.messages import json_value, track
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    from tellapart.metrics.meteor_score import Lexicon

SIGNALS = ("log p", "PMI", "agreement", "phrase", "sentence", "sum")
PLACES = ((1, 3), (4, 6), (7, 9), (10, 12), (13, 99))  # content words, counted from 1
RESAMPLES, BATCH = 300, 50
EYE = Path(__file__).parent / "records" / "words-by-eye" / "words.jsonl"
IS_FALSE: Mapping[str, bool | None] = {"there": False, "not there": True, "unclear": None}  # by eye

# Returns whether each content word of the item's caption is false; None: not judged.
Judge = Callable[[Item, str], list[bool | None]]


@dataclass(frozen=True)
class JudgedWords:
    """W judged words: the picture of each, its position among the content words, whether it is false, signal_WK."""

    picture_W: np.ndarray
    place_W: np.ndarray
    false_W: np.ndarray
    signal_WK: np.ndarray


def find_signals(
    name: str, data: str, prompt: str | None, samples: int, eye: Path | None = None
) -> list[dict[str, Any]]:
    """Returns the rows of `table` for a captioner's captions of the data.

    ``prompt``: None: "in this picture" for the shipped captioner, none for others. ``eye``: a file as `EYE`; only its
    words are judged, and only in the same captions. Raises `UsageError` for a prompt that the captioner does not take,
    for fewer than two pictures, and for some with neither truth nor references.
    """
    by_eye = None if eye is None else judge_by_eye(eye)
    captioner, items = load_captioner(name), list(open_data(data))
    if prompt is None:
        prompt = "in this picture" if name == "scenes" else ""
    if prompt:
        if not hasattr(captioner, "set_prompt"):
            raise UsageError(f"{name} takes no prompt; leave --prompt out")
        captioner.set_prompt(prompt)
    if len(items) < 2:
        raise UsageError(f"{data}: {len(items)} picture; mutual information compares pictures, so expected at least 2")
    by_data: Judge = judge_scene if all(item.truth is not None for item in items) else judge_by_references
    judge = by_eye or by_data
    if judge is judge_by_references and not all(item.references for item in items):
        raise UsageError(f"{data}: pictures without references; words of captions cannot be judged")
    return table(measure_words(captioner, items, judge, samples=samples))


def judge_scene(item: Item, caption: str) -> list[bool | None]:
    """Judges a caption of `scenes`: a word is false if it is part of a false claim."""
    spans = [(start, end) for start, end, _ in mark_caption(caption, item.truth).false]
    return [any(start < word.end and word.start < end for start, end in spans) for word in content_words(caption)]


def judge_by_references(item: Item, caption: str) -> list[bool | None]:
    """Judges the nouns of a caption: false without the same word, stem or synset in the references."""
    lexicon = _lexicon()
    said = lexicon.numbers([sentence.split() for sentence in ptb_tokenize(list(item.references))])
    known = set(itertools.chain(*said))
    stems = {lexicon.stem[number] for number in known}
    synsets = frozenset().union(*(lexicon.synsets[number] for number in known))
    verdicts: list[bool | None] = []
    for word in content_words(caption):
        (number,) = lexicon.numbers([[caption[word.start : word.end].lower()]])[0]
        supported = number in known or lexicon.stem[number] in stems or bool(lexicon.synsets[number] & synsets)
        verdicts.append(None if word.kind != "head" else not supported)
    return verdicts


def judge_by_eye(path: Path) -> Judge:
    """Returns the judge for a file of captions whose nouns were checked against the picture by eye.

    A line of JSON per picture: ``id``, ``caption``, and ``nouns``, pairs of a noun and "there", "not there" or
    "unclear", in the caption's order. Unclear ones, other words and other captions are not judged. Raises `UsageError`
    for another file.
    """
    seen: dict[tuple[str, str], list[tuple[str, bool | None]]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            seen[row["id"], row["caption"]] = [(noun, IS_FALSE[verdict]) for noun, verdict in row["nouns"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"--eye {path}: {error!r}; expected lines as those of {EYE.name} in replication/records"
        ) from None

    def judge(item: Item, caption: str) -> list[bool | None]:
        words, nouns = content_words(caption), iter(seen.get((item.id, caption), ()))
        noun, false = next(nouns, ("", None))
        verdicts: list[bool | None] = []
        for word in words:
            is_next = word.kind == "head" and caption[word.start : word.end] == noun
            verdicts.append(false if is_next else None)
            if is_next:
                noun, false = next(nouns, ("", None))
        return verdicts

    return judge


@cache
def _lexicon() -> Lexicon:
    from tellapart.metrics.meteor_score import Lexicon
    from tellapart.metrics.meteor_tables import open_tables

    return Lexicon(open_tables())


def measure_words(
    captioner: Captioner, items: Sequence[Item], judge: Judge, *, samples: int = 16, temperature: float = 0.6
) -> JudgedWords:
    """Writes a greedy caption of each of at least two pictures, judges its words, and computes every signal.

    ``log p``: of the word, given what stands before it. ``PMI``: that less its log-probability for the average picture
    of the batch (for others of it, where pictures keep their own shapes). ``agreement``: the share of ``samples`` that
    say the word. ``phrase``, ``sentence``: mean log p of the words of its phrase, and of its sentence. ``sum``: of the
    five, each with mean 0 and deviation 1. Raises `UsageError` where no word can be judged.
    """
    captioner.model.eval()
    rows = make_view(captioner, FeatureStore()).rows(items)
    speaker, room = Speaker(captioner), captioner.max_caption_tokens or 60
    drawn = Decoding(kind="sample", samples=samples, temperature=temperature, max_tokens=min(60, room))
    found: list[tuple[int, int, bool, list[float]]] = []
    for place_B in track(np.array_split(np.arange(len(items)), -(-len(items) // BATCH)), label="captions, signals"):
        first, some = int(place_B[0]), [items[place] for place in place_B]
        with torch.no_grad():
            visual = captioner.inputs(torch.as_tensor(rows[first : first + len(some)]))
            rollout = captioner.generate(visual, Decoding(max_tokens=drawn.max_tokens))
            texts = captioner.generate(visual, drawn, ItemSeeds(tuple(item.id for item in some), 0)).texts
            log_p_ORT = speaker.log_probs(rollout, Batch(some, torch.arange(len(some)), visual)).cpu()
        said = [distinct_words(text, content_words) for text in texts]
        values = _signals(
            rollout, captioner.tokenizer, log_p_ORT, [said[r * samples :][:samples] for r in range(len(some))]
        )
        for r, (item, text) in enumerate(zip(some, rollout.texts, strict=True)):
            for w, (false, value) in enumerate(zip(judge(item, text), values[r], strict=True)):
                if false is not None:
                    found.append((first + r, w + 1, false, value))
    if not found:
        raise UsageError(f"{captioner.name}: no word of its captions can be judged; expected captions with nouns")
    picture_W, place_W, false_W, signals = zip(*found, strict=True)
    signal_WK = np.array(signals)
    scaled_WK = (signal_WK - signal_WK.mean(0)) / signal_WK.std(0).clip(1e-9)
    signal_WK = np.concatenate([signal_WK, scaled_WK.sum(1, keepdims=True)], axis=1)
    return JudgedWords(np.array(picture_W), np.array(place_W), np.array(false_W), signal_WK)


def _signals(
    rollout: Rollout, tokenizer: Any, log_p_ORT: torch.Tensor, said_RS: Sequence[Sequence[set[str]]]
) -> list[list[list[float]]]:
    """Returns the signals but their sum of each content word of each caption. said_RS: the words of the samples."""
    found, word_RT = words_of_tokens(rollout, tokenizer, content_words)
    log_p_ORW = word_log_probs(log_p_ORT, word_RT, max(1, *map(len, found)))
    information_RW = mutual_information(log_p_ORW.flatten(1)).view(log_p_ORW.shape[1:]).numpy()
    log_p_RW = log_p_ORW[0].numpy()
    signals = []
    for r, (text, words) in enumerate(zip(rollout.texts, found, strict=True)):
        described, log_p_W = Description(text), log_p_RW[r, : len(words)]
        phrase_W = log_p_W.copy()
        for phrase in described.phrases:
            phrase_W[list(phrase.words)] = log_p_W[list(phrase.words)].mean()
        sentence_W = np.array(described.sentences, int)
        mean_W = np.array([log_p_W[sentence_W == number].mean() for number in sentence_W])
        lower = text.lower()
        shares = [np.mean([lower[word.start : word.end] in said for said in said_RS[r]]) for word in words]
        columns = (log_p_W, information_RW[r, : len(words)], shares, phrase_W, mean_W)
        signals.append([list(map(float, row)) for row in zip(*columns, strict=True)])
    return signals


def area(signal_W: np.ndarray, false_W: np.ndarray) -> float:
    """Computes the probability that a false word has a lower signal than a true one; ties count half.

    NaN if all words are true or all are false.
    """
    false = int(false_W.sum())
    if not 0 < false < len(false_W):
        return float("nan")
    _, kind_W, count = np.unique(signal_W, return_inverse=True, return_counts=True)
    rank_W = (np.cumsum(count) - (count - 1) / 2)[kind_W]
    true = len(false_W) - false
    return float((rank_W[~false_W].sum() - true * (true + 1) / 2) / (true * false))


def table(words: JudgedWords) -> list[dict[str, Any]]:
    """Returns one row for all words and one for each range of places: words, share that is false, areas.

    Intervals of 95 % are of all words, over pictures. None in place of an area, or of an interval, that is undefined
    because all words of a range, or of a resample, are true or false.
    """
    rows: list[dict[str, Any]] = []
    for low, high in ((1, 99), *PLACES):
        here = (words.place_W >= low) & (words.place_W <= high)
        if here.any():
            areas = (area(words.signal_WK[here, k], words.false_W[here]) for k in range(len(SIGNALS)))
            row: dict[str, Any] = {"place": [low, high], "n": int(here.sum())}
            row |= {"false": float(100 * words.false_W[here].mean())}
            rows.append(row | dict(zip(SIGNALS, map(json_value, areas), strict=True)))
    rows[0]["intervals"] = _intervals(words)
    return rows


def _intervals(words: JudgedWords) -> Mapping[str, tuple[float | None, float | None]]:
    rng = np.random.default_rng(0)
    of_picture = [np.flatnonzero(words.picture_W == picture) for picture in np.unique(words.picture_W)]
    drawn: list[list[float]] = []
    for _ in track(range(RESAMPLES), label="intervals"):
        chosen = np.concatenate([of_picture[n] for n in rng.integers(0, len(of_picture), len(of_picture))])
        drawn.append([area(words.signal_WK[chosen, k], words.false_W[chosen]) for k in range(len(SIGNALS))])
    low_K, high_K = np.percentile(np.array(drawn), [2.5, 97.5], axis=0)
    return {name: (json_value(low_K[k]), json_value(high_K[k])) for k, name in enumerate(SIGNALS)}
