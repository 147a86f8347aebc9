"""Words that a captioner is not sure of leave its captions, by the same probabilities as of the plain way."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from PIL import Image
from test_samples import visual_of
from test_table import CAPTIONERS

from tellapart.captioners import load_captioner
from tellapart.captioners.doubtful_nouns import confident_texts
from tellapart.captioners.generated_captions import generate_captions, without_gaps
from tellapart.language.condensing import without_repeats
from tellapart.language.soften import soften
from tellapart.language.token_words import words_of_tokens
from tellapart.language.words import content_words
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe

WRITTEN = Decoding(kind="beam", beams=3, samples=2, max_tokens=8)


def plain_log_probs(captioner: Any, visual: torch.Tensor, rollout: Any) -> list[list[float]]:
    """Of each noun (0 for other content words), one caption after the other, all scores at once."""
    found, word_RT = words_of_tokens(rollout, captioner.tokenizer, content_words)
    rows = []
    for r, words in enumerate(found):
        picture = r // rollout.samples
        tokens_1T, valid_1T = rollout.tokens_RT[r : r + 1], rollout.valid_RT[r : r + 1]
        with torch.no_grad():
            logits_TV = captioner.logits(visual[picture : picture + 1], tokens_1T, valid_1T)[0]
        log_p_T = logits_TV.double().log_softmax(1).gather(1, tokens_1T[0, :, None])[:, 0]
        sums = [float(log_p_T[word_RT[r] == number].sum()) for number in range(len(words))]
        rows.append([value if word.kind == "head" else 0.0 for value, word in zip(sums, words, strict=True)])
    return rows


@pytest.mark.long
@pytest.mark.parametrize("name", CAPTIONERS)
def test_nouns_of_a_smaller_probability_are_left_out(name: str, tmp_path: Path) -> None:
    captioner: Any = load_captioner(str(CAPTIONERS[name](tmp_path)), precision="fp32")
    captioner.model.eval()
    visual = visual_of(captioner)
    with torch.no_grad(), without_gaps(captioner):
        rollout = captioner.generate(visual, WRITTEN)
    expected = plain_log_probs(captioner, visual, rollout)
    every = [value for row in expected for value in row if value]
    middle = median(every) + 1e-3 if every else -1.0  # an untrained one may write nothing but "of"
    found = confident_texts(captioner, visual, rollout, math.exp(middle))
    assert found == [
        without_repeats(soften(text, [value < middle for value in row]))
        for text, row in zip(rollout.texts, expected, strict=True)
    ]
    decoding = WRITTEN.model_copy(update={"confidence": math.exp(middle)})
    assert generate_captions(captioner, visual, decoding, batch_size=2) == found


def test_what_is_said_twice_is_said_once() -> None:
    for caption, left in (
        ("a small black star and a small black star on the cloth", "a small black star on the cloth"),
        ("a black star and a white star", "a black star and a white star"),
        ("a dog next to another dog on grass", "a dog next to another dog on grass"),
        ("a black dog left of a black dog on the grass", "a black dog on the grass"),
        ("two dogs run, two dogs run on the grass", "two dogs run on the grass"),
    ):
        assert without_repeats(caption) == left


def test_the_command_edits_captions_and_says_so(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(3):
        Image.effect_noise((60, 40), 90).convert("RGB").save(tmp_path / "photos" / f"{number}.jpg")
    model = CAPTIONERS["BLIP"](tmp_path)
    few = ("--max-tokens", "8")
    written = {}
    for out, more in (("plain", ()), ("sure", ("--decoding", "confidence=0.9"))):
        path = tmp_path / f"{out}.jsonl"
        done = cli("caption", model, tmp_path / "photos", "--precision", "fp32", *few, "-o", path, *more)
        assert done.status == 0, done.err
        written[out] = [json.loads(line)["caption"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(written["sure"]) == 3 and written["sure"] != written["plain"]
    again = cli("caption", model, tmp_path / "photos", "--precision", "fp32", *few, "-o", tmp_path / "sure.jsonl")
    assert again.status == 2 and "was started with a different decoding" in again.err
    wrong = cli("caption", model, tmp_path / "photos", "--decoding", "confidence=1.5", "-o", tmp_path / "x.jsonl")
    assert (
        wrong.status == 2
        and "--decoding confidence: expected a number from 0.01 to 0.99, got 1.5" in wrong.err
        and not (tmp_path / "x.jsonl").exists()
    )


def test_training_from_edited_captions_is_refused() -> None:
    table = {
        "name": "edited",
        "data": {"train": "scenes:plain?n=4", "validation": "scenes:plain?n=4&split=validation"},
        "captioner": {"name": "scenes"},
        "scorer": {"name": "scenes"},
        "objective": {
            "kind": "reinforce",
            "rewards": [{"kind": "self_retrieval"}],
            "decoding": {"kind": "sample", "samples": 2, "confidence": 0.3},
        },
        "training": {"steps": 1, "batch_size": 2, "learning_rate": 1e-4},
    }
    with pytest.raises(Exception, match=r"objective\.decoding\.confidence edits captions"):
        check_recipe(table, "a.toml")
