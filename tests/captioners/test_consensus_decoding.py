"""Consensus decoding: the agreement against its definition, and every captioner's samples chosen by it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from test_samples import IDS, visual_of
from test_table import CAPTIONERS

from tellapart.captioners import generate_captions, load_captioner
from tellapart.captioners.consensus import consensus, mean_similarity
from tellapart.inference.best_of import BestOf, chosen_captions
from tellapart.language.word_shares import word_shares
from tellapart.language.words import content_words
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.scorers import Scorer, load_scorer
from tellapart.types import Item
from tellapart.utils.rng import ItemSeeds

WRITTEN = Decoding(kind="consensus", candidates=7, temperature=1.3, max_tokens=6)
SAMPLES = [
    "a red dog runs on the grass",
    "a red dog on the grass",
    "a dog",
    "two cats sleep on a red sofa near a window",
    "a red dog runs on the grass",
    "a brown dog runs through the grass",
]


def plain_agreement(samples: list[str]) -> list[float]:
    """Sample by sample, n-gram by n-gram."""

    def said(text: str) -> set[str]:
        return {text[word.start : word.end] for word in content_words(text)}

    def grams(text: str, n: int) -> Counter[tuple[str, ...]]:
        words = text.split()
        return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))

    def cosine(a: Counter[Any], b: Counter[Any]) -> float:
        norms = math.sqrt(sum(v * v for v in a.values()) * sum(v * v for v in b.values()))
        return sum(count * b[gram] for gram, count in a.items()) / norms if norms else 0.0

    def similarity(a: str, b: str) -> float:
        penalty = math.exp(-((len(a.split()) - len(b.split())) ** 2) / 72)
        return penalty * sum(cosine(grams(a, n), grams(b, n)) for n in range(1, 5))

    return [
        float(
            np.mean([np.mean([word in said(other) for other in samples]) for word in said(text)] or [0])
            + np.mean([similarity(text, other) for other in samples])
        )
        for text in samples
    ]


def test_agreement_is_that_of_its_definition() -> None:
    assert mean_similarity(SAMPLES) == pytest.approx(plain_agreement(SAMPLES))
    assert mean_similarity([*SAMPLES, "on the"]) == pytest.approx(
        plain_agreement([*SAMPLES, "on the"])
    )  # no content word
    assert mean_similarity(["a b c d e"] * 3) == pytest.approx([5.0] * 3)
    long = [" ".join(f"word{(number * k) % 60}" for k in range(60)) for number in (1, 7, 11)]  # 60-word captions
    assert mean_similarity(long) == pytest.approx(plain_agreement(long))


PARAGRAPHS = [
    "A red dog runs on the grass. A man in a blue hat watches it. The sky is grey.",
    "A man in a blue hat watches a dog. A red dog runs on the grass.",
    "A red dog runs on the grass.",
    "Two cats sleep on a red sofa! The sky is grey.",
]


def test_paragraphs_agree_sentence_by_sentence() -> None:
    """By the definition, from the similarity of single sentences, which the test above holds."""

    def similarity(a: str, b: str) -> float:
        """Of two samples: half of it, and half of the sample's with itself (4), is what the words' shares leave."""
        return float((mean_similarity([a, b])[0] - word_shares([a], [a, b])[0]) * 2 - 4)

    parts = [[one.strip() for one in re.split("[.!]", text) if one.strip()] for text in PARAGRAPHS]

    def one_way(own: list[str], other: list[str]) -> float:
        return float(np.mean([max(similarity(s, t) if s != t else 4.0 for t in other) for s in own]))

    expected = [
        shares + np.mean([(one_way(own, other) + one_way(other, own)) / 2 for other in parts])
        for shares, own in zip(word_shares(PARAGRAPHS, PARAGRAPHS), parts, strict=True)
    ]
    assert mean_similarity(PARAGRAPHS) == pytest.approx(expected)
    turned = [". ".join(reversed(own)) + "." for own in parts]
    assert mean_similarity(turned) == pytest.approx(mean_similarity(PARAGRAPHS)), "the order of sentences says nothing"
    false = PARAGRAPHS[0].replace("The sky is grey", "A purple tent stands beside a lake")
    best = mean_similarity([false, *PARAGRAPHS])
    assert best[0] < best[1], "a sentence that no other sample has costs its sample"
    assert consensus([false, *PARAGRAPHS]) == PARAGRAPHS[0]


def test_the_sample_that_the_others_agree_with_is_kept() -> None:
    assert consensus(SAMPLES) == "a red dog runs on the grass"
    assert consensus(["", "a cat", "", "a red cat", "a cat", ""]) == "a cat"
    assert consensus(["", ""]) == ""
    assert consensus(["a dog", "a cat"]) == "a dog"  # the first of equal ones
    punctuated = ["A dog.", "A red dog, on grass.", "A red dog on grass"]
    assert consensus(punctuated) == "A red dog, on grass."


@pytest.mark.long
@pytest.mark.parametrize("name", CAPTIONERS)
def test_captions_are_the_consensus_of_the_pictures_own_samples(name: str, tmp_path: Path) -> None:
    """Of 3:2 photos, in any batch; with words left out, among samples without them."""
    captioner: Any = load_captioner(str(CAPTIONERS[name](tmp_path)), precision="fp32")
    captioner.model.eval()
    visual, seeds = visual_of(captioner), ItemSeeds(IDS, seed=2)
    for confidence in (0.0, 0.2):
        decoding = WRITTEN.model_copy(update={"confidence": confidence})
        sampled = decoding.model_copy(update={"kind": "sample", "samples": 7})
        texts = generate_captions(captioner, visual, sampled, seeds=seeds)
        expected = [consensus(texts[start : start + 7]) for start in range(0, 35, 7)]
        assert generate_captions(captioner, visual, decoding, seeds=seeds) == expected
        assert generate_captions(captioner, visual, decoding, batch_size=2, seeds=seeds) == expected


def plain_choice(samples: list[str], scorer: Scorer, images_ND: np.ndarray, place: int, weight: float) -> str:
    """Agreement + weight x log p(picture | caption), sample by sample; all pictures are look-alikes."""
    written = [text for text in samples if text]
    totals = []
    for text, agreed in zip(written, mean_similarity(written), strict=True):
        logits_N = scorer.scale * scorer.text_features([text])[0].numpy() @ images_ND.T
        totals.append(agreed + weight * (logits_N[place] - np.log(np.exp(logits_N).sum())))
    return written[int(np.argmax(totals))] if written else ""


@pytest.mark.long
@pytest.mark.parametrize("name", CAPTIONERS)
def test_a_scorer_chooses_too(name: str, tmp_path: Path, tiny_scorer: Path) -> None:
    """Of 3:2 photos: the choice is that of the definition, and a great weight makes another one."""
    captioner: Any = load_captioner(str(CAPTIONERS[name](tmp_path)), precision="fp32")
    scorer = load_scorer(str(tiny_scorer))
    visual, seeds = visual_of(captioner), ItemSeeds(IDS, seed=2)
    images_ND = np.random.default_rng(0).standard_normal((5, scorer.text_features(["a"]).shape[1]), dtype=np.float32)
    items: list[Any] = [Item(id_, None, ()) for id_ in IDS]  # type: ignore[arg-type]  # no picture is read
    chooser = BestOf.of_features(scorer, IDS, images_ND, progress=False)
    texts = generate_captions(captioner, visual, WRITTEN.drawn, seeds=seeds)
    groups = [texts[start : start + 7] for start in range(0, 35, 7)]
    for weight in (0.5, 50.0):
        expected = [plain_choice(group, scorer, images_ND, place, weight) for place, group in enumerate(groups)]
        decoding = WRITTEN.model_copy(update={"scorer_weight": weight})
        assert chosen_captions(captioner, visual, decoding, items, chooser, seeds) == expected
    assert expected != [consensus(group) for group in groups]
    with pytest.raises(ValueError, match="a scorer selects among these captions; call"):
        generate_captions(captioner, visual, decoding, seeds=seeds)


def test_empty_samples_are_not_chosen_by_a_scorer() -> None:
    samples = ["", "a cat", "a red cat", "a cat", ""]
    assert consensus(samples, np.array([9.0, 0.0, 8.0, 0.0, 9.0])) == "a red cat"
    assert consensus(samples, np.zeros(5)) == consensus(samples) == "a cat"
    assert consensus(["", ""], np.ones(2)) == ""


def test_many_candidates_go_in_small_batches(tiny_captioner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captioner: Any = load_captioner(str(tiny_captioner))
    rows: list[int] = []
    generate = captioner.generate

    def counted(visual: torch.Tensor, decoding: Decoding, seeds: Any = None) -> Any:
        rows.append(len(visual) * decoding.samples)
        return generate(visual, decoding, seeds)

    monkeypatch.setattr(captioner, "generate", counted)
    generate_captions(captioner, visual_of(captioner), WRITTEN.model_copy(update={"candidates": 500}))
    generate_captions(captioner, visual_of(captioner), Decoding(kind="sample", samples=500, max_tokens=6))
    assert rows == [1000, 1000, 500] * 2


def test_a_captioner_alone_refuses_it(tiny_captioner: Path) -> None:
    captioner: Any = load_captioner(str(tiny_captioner))
    with pytest.raises(ValueError, match="a consensus compares decoded captions, so"):
        captioner.generate(visual_of(captioner), WRITTEN)
    with pytest.raises(ValidationError, match="samples is 3, but kind = 'consensus' generates only 1"):
        Decoding(kind="consensus", samples=3)


@pytest.mark.long
def test_the_command(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(3):
        Image.effect_noise((60, 40), 90).convert("RGB").save(tmp_path / "photos" / f"{number}.jpg")
    command = ["caption", CAPTIONERS["BLIP"](tmp_path), tmp_path / "photos", "--precision", "fp32", "--max-tokens", "8"]

    def captions(out: str, *options: str) -> list[Any]:
        done = cli(*command, "-o", tmp_path / out, *options)
        assert done.status == 0, done.err
        lines = [json.loads(line) for line in (tmp_path / out).read_text(encoding="utf-8").splitlines()]
        return [line.get("captions") or line["caption"] for line in lines]

    samples = captions("all.jsonl", "--samples", "6", "--decoding", "temperature=0.6")
    assert captions("one.jsonl", "--consensus", "6") == [consensus(six) for six in samples]
    assert captions("jobs.jsonl", "--consensus", "6", "--workers", "1") == captions("one.jsonl", "--consensus", "6")
    for other in (("--beams", "3"), ("--samples", "3"), ("--best-of", "3")):
        done = cli(*command, "-o", tmp_path / "no.jsonl", "--consensus", "6", *other)
        assert done.status == 2 and f"{other[0]} cannot be combined with --consensus 6; remove this option" in done.line


@pytest.mark.long
def test_the_command_with_a_scorer(tmp_path: Path, cli: Any, tiny_scorer: Path) -> None:
    """Of 3:2 photos, BLIP: in any batch, resumed, and not mixed with captions by another weight."""
    (tmp_path / "photos").mkdir()
    for number in range(5):
        Image.effect_noise((60, 40), 40 + 30 * number).convert("RGB").save(tmp_path / "photos" / f"{number}.jpg")
    command = ["caption", CAPTIONERS["BLIP"](tmp_path), tmp_path / "photos", "--precision", "fp32", "--max-tokens", "8"]
    scorer = ["--scorer", tiny_scorer]

    def captions(out: str, *options: Any) -> list[Any]:
        done = cli(*command, "-o", tmp_path / out, *options)
        assert done.status == 0, done.err
        lines = [json.loads(line) for line in (tmp_path / out).read_text(encoding="utf-8").splitlines()]
        assert all(line.keys() <= {"id", "caption", "captions"} for line in lines)
        return [line.get("captions") or line["caption"] for line in lines]

    samples = captions("all.jsonl", "--samples", "6", "--decoding", "temperature=0.6")
    loaded = load_scorer(str(tiny_scorer))
    pictures = [Image.open(tmp_path / "photos" / f"{number}.jpg").convert("RGB") for number in range(5)]
    images_ND = loaded.image_features(loaded.pixels(pictures)).detach().numpy()
    wanted = ["--consensus", "6", *scorer, "--decoding", "scorer_weight=30"]
    expected = [plain_choice(six, loaded, images_ND, place, 30) for place, six in enumerate(samples)]
    assert captions("far.jsonl", *wanted) == expected != [consensus(six) for six in samples]
    assert captions("far2.jsonl", *wanted, "--batch-size", "2") == expected
    whole = (tmp_path / "far.jsonl").read_bytes()
    (tmp_path / "far.jsonl").write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert captions("far.jsonl", *wanted) == expected and (tmp_path / "far.jsonl").read_bytes() == whole
    assert "0 captions written, 5 already done" in cli(*command, "-o", tmp_path / "far.jsonl", *wanted).err
    done = cli(*command, "-o", tmp_path / "far.jsonl", "--consensus", "6", *scorer)
    assert done.status == 2 and "--overwrite" in done.line
    assert captions("near.jsonl", "--consensus", "6", *scorer) == [
        plain_choice(six, loaded, images_ND, place, 0.1) for place, six in enumerate(samples)
    ]
    for options, told in (
        (
            ["--consensus", "6", "--decoding", "scorer_weight=1"],
            "--decoding scorer_weight requires --consensus and --scorer; add, for example, --consensus 48",
        ),
        (
            ["--best-of", "6", *scorer, "--decoding", "scorer_weight=1"],
            "--decoding scorer_weight requires --consensus and --scorer; add, for example, --consensus 48",
        ),
        (scorer, "--scorer selects from samples; add --best-of 10 or --consensus 48, or remove"),
        (["--consensus", "6", *scorer, "--workers", "1"], "--scorer compares each picture with all others"),
    ):
        done = cli(*command, "-o", tmp_path / "no.jsonl", *options)
        assert done.status == 2 and done.line.startswith(told), done.line


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"validation": {"decoding": {"kind": "consensus", "scorer_weight": 0.1}}},
            "validation.decoding.scorer_weight would",
        ),
        (
            {"scorer": None, "validation": {"select": "loss"}},
            r"\[scorer\] is missing; evaluation.decoding.scorer_weight",
        ),
    ],
)
def test_recipes_that_a_scorer_cannot_serve_are_refused(changes: dict[str, Any], told: str) -> None:
    table: dict[str, Any] = {
        "name": "chosen",
        "data": {"train": "scenes:plain?n=4", "validation": "scenes:plain?n=4&split=validation"},
        "captioner": {"name": "scenes"},
        "scorer": {"name": "scenes"},
        "objective": {"kind": "mle"},
        "training": {"steps": 1, "batch_size": 2, "learning_rate": 1e-4},
        "evaluation": {"decoding": {"kind": "consensus", "scorer_weight": 0.1}},
    }
    check_recipe(table, "a.toml")
    with pytest.raises(Exception, match=told):
        check_recipe({key: value for key, value in (table | changes).items() if value is not None}, "a.toml")


def test_training_from_a_consensus_is_refused() -> None:
    table = {
        "name": "chosen",
        "data": {"train": "scenes:plain?n=4", "validation": "scenes:plain?n=4&split=validation"},
        "captioner": {"name": "scenes"},
        "scorer": {"name": "scenes"},
        "objective": {"kind": "reinforce", "rewards": [{"kind": "self_retrieval"}], "decoding": {"kind": "consensus"}},
        "training": {"steps": 1, "batch_size": 2, "learning_rate": 1e-4},
    }
    with pytest.raises(Exception, match=r"objective.decoding.kind = 'consensus' selects one of several"):
        check_recipe(table, "a.toml")


def test_settings_of_other_kinds_are_written_as_before() -> None:
    """So that fingerprints of runs and files of captions that were begun stay what they were."""
    keys = {"kind", "beams", "temperature", "samples", "max_tokens", "confidence"}
    assert Decoding(kind="sample").model_dump().keys() == keys
    assert WRITTEN.model_dump()["candidates"] == 7
    assert Decoding(**WRITTEN.model_dump()) == WRITTEN
