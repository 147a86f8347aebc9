"""``caption --drop-guesses``: which words are doubted, and what is left of a caption without them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.inference.doubts import CONTRASTS, EVIDENCE, Beliefs
from tellapart.language.soften import soften
from tellapart.language.words import content_words

SOFTENED = [
    ("a big red star on the green grass", "red", "a big star on the green grass"),
    ("a big red star on the green grass", "star", "a big red thing on the green grass"),
    ("a big red star on the green grass", "green grass", "a big red star"),
    ("an orange umbrella and a dog", "orange", "an umbrella and a dog"),
    ("a big orange umbrella", "big", "an orange umbrella"),
    ("an orange umbrella and a dog", "dog", "an orange umbrella"),
    ("a dog and an orange umbrella", "dog", "a thing and an orange umbrella"),
    ("a star to the left of a heart", "left", "a star and a heart"),
    ("a star to the left of a heart", "left heart", "a star"),
    ("A man riding a bike down a street", "riding", "A man with a bike down a street"),
    ("A man riding a bike down a street", "bike", "A man riding a thing down a street"),
    ("A man riding a bike down a street", "riding bike", "A man down a street"),
    ("A man riding a bike down a street", "man", "A thing riding a bike down a street"),
    ("A group of people standing around a table.", "group", "people standing around a table."),
    ("A group of people standing around a table.", "people standing table", "A group."),
    ("two brown dogs are running across the field, near a café's sign.", "dogs",
     "two brown things are running across the field, near a café's sign."),
    ("two brown dogs are running across the field, near a café's sign.", "running café's sign",
     "two brown dogs across the field."),
    ("there is a red star, a blue heart and a green square", "blue heart", "there is a red star and a green square"),
    ("there is a red star, a blue heart and a green square", "red star",
     "there is a thing, a blue heart and a green square"),
    ("a star sits behind a heart", "sits", "a star behind a heart"),
    ("brown dogs on grass", "dogs", "brown things on grass"),
    ("green grass", "grass", "something green"),
    ("a large red shape and a blue heart", "red shape", "a large shape and a blue heart"),
    ("two objects on the sand", "objects sand", "two objects"),
    ("dog", "dog", "something"),
    ("", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("caption", "doubted", "left"), SOFTENED)
def test_what_is_left_of_a_caption(caption: str, doubted: str, left: str) -> None:
    words = [caption[word.start : word.end] for word in content_words(caption)]
    assert soften(caption, [word in doubted.split() for word in words]) == left


def test_whatever_is_doubted_no_article_stands_alone() -> None:
    """All subsets of the doubted words of some captions: nothing but words, no "a a", no "and and", no article before
    nothing or before a preposition."""
    for caption in dict.fromkeys(caption for caption, _, _ in SOFTENED if caption):
        count = len(content_words(caption))
        for mask in range(1 << count):
            text = soften(caption, [bool(mask >> k & 1) for k in range(count)])
            assert text.strip() == text and text and "  " not in text
            assert not re.search(r"\b(an?|the) (an?|the|and|or|on|of|to|across|near|around|down|behind)\b", text), text
            assert not re.search(r"\b(an?|the|and|or)[.,]?$|^(and|or)\b|\band and\b|\ba [aeio]", text), (caption, text)


WORDS = ["a", "red", "dog", "##s", "on", "the", "grass", "blue", "cat", "and", "sand", "bri", "##ck"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos of 3:2, one of which is damaged."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(11):
        colour = (number * 23, 255 - number * 20, (number * 97) % 256)
        Image.effect_noise((90, 60), 20 + 9 * number).convert("RGB").save(folder / f"{number:02}.jpg")
        Image.new("RGB", (90, 60), colour).save(folder / f"{number:02}.jpg", quality=95)
    (folder / "02.jpg").write_bytes(b"no picture")
    return folder


@pytest.fixture
def blip(tmp_path: Path) -> Path:
    """BLIP's layout with random weights large enough that pictures change what it says."""
    folder = tmp_path / "blip"
    folder.mkdir()
    save_blip(folder, WORDS)
    captioner: Any = load_captioner(str(folder), precision="fp32")
    with torch.no_grad():
        for number, parameter in enumerate(captioner.model.parameters()):
            if parameter.ndim > 1:
                parameter.copy_(
                    0.5 * torch.sin(1.7 * torch.arange(parameter.numel()) + number).reshape(parameter.shape)
                )
    captioner.save(folder)
    return folder


def test_beliefs_are_log_ratios_of_one_picture_against_the_others(blip: Path, photos: Path) -> None:
    captioner: Any = load_captioner(str(blip), precision="fp32")
    captioner.model.eval()
    pictures = [Image.open(photos / f"{k:02}.jpg") for k in (0, 4, 7, 9)]
    visual = captioner.encode(captioner.pixels(pictures)).detach()
    texts = ["red dogs on the brick", "a blue cat", "the sand", "dog and cat"]
    found = Beliefs(captioner, visual[:3], ["0", "1", "2"])(visual, ["0", "1", "2", "3"], texts)
    assert [len(row) for row in found] == [3, 2, 1, 2]
    tokens_RT, valid_RT = captioner.pad(captioner.tokenize(texts))

    def log_p(picture: int, caption: int, tokens: list[int]) -> float:
        scores = captioner.logits(visual[picture : picture + 1], tokens_RT[caption : caption + 1], valid_RT[:1])[
            0
        ].detach()
        return float(sum(scores.log_softmax(-1)[t, tokens_RT[caption, t]] for t in tokens))

    for caption, place, tokens, others in ((0, 1, [1, 2], (1, 2)), (3, 1, [2], (0, 1, 2))):
        rivals = torch.tensor([log_p(other, caption, tokens) for other in others])
        expected = log_p(caption, caption, tokens) - float(rivals.logsumexp(0) - torch.tensor(len(others)).log())
        assert found[caption][place] == pytest.approx(expected, abs=1e-4), "no picture is compared with itself"


def test_the_command_edits_captions_and_resumes(blip: Path, photos: Path, tmp_path: Path, cli: Any) -> None:
    """Captions are those without the option, less what is doubted; the batch size changes nothing."""

    def captions(out: Path, *options: str) -> dict[str, str]:
        done = cli(
            "caption", blip, photos, "--beams", "1", "--max-tokens", "8", "--precision", "fp32", "-o", out, *options
        )
        assert done.status == 0, done.err
        return {r["id"]: r["caption"] for r in map(json.loads, out.read_text(encoding="utf-8").splitlines())}

    plain = captions(tmp_path / "plain.jsonl")
    truthful = captions(tmp_path / "truthful.jsonl", "--drop-guesses")
    other = captions(tmp_path / "other.jsonl", "--drop-guesses", "--batch-size", "3")
    assert truthful == other and len(plain) == 10 and set(plain) == set(truthful)
    assert truthful != plain
    captioner: Any = load_captioner(str(blip), precision="fp32")
    ids = sorted(plain)
    visual = captioner.encode(captioner.pixels([Image.open(photos / name) for name in ids])).detach()
    spread = dict.fromkeys(f"{11 * k // CONTRASTS:02}.jpg" for k in range(CONTRASTS))
    contrast = [name for name in [*spread, *ids] if name in plain]
    contrast = list(dict.fromkeys(contrast))[:CONTRASTS]
    captioner.model.eval()
    rows = torch.stack([visual[ids.index(name)] for name in contrast])
    beliefs = Beliefs(captioner, rows, contrast)(visual, ids, [plain[name] for name in ids])
    for name, row in zip(ids, beliefs, strict=True):
        assert truthful[name] == soften(plain[name], [nats < EVIDENCE for nats in row])
    refused = cli(
        "caption",
        blip,
        photos,
        "--beams",
        "1",
        "--max-tokens",
        "8",
        "--precision",
        "fp32",
        "-o",
        tmp_path / "plain.jsonl",
        "--drop-guesses",
    )
    assert refused.status == 2 and "truthful" in refused.err, "a file of other settings is not gone on with"


def test_what_cannot_be_rid_of_guesses_is_one_line(blip: Path, photos: Path, tmp_path: Path, cli: Any) -> None:
    done = cli("caption", blip, photos, "--samples", "3", "--drop-guesses", "-o", tmp_path / "a.jsonl")
    assert (
        done.status == 2
        and "--drop-guesses and --samples cannot be combined, because only a single caption per" in done.err
    )
    done = cli("caption", blip, photos / "00.jpg", "--drop-guesses", "-o", tmp_path / "a.jsonl")
    assert done.status == 2 and "--drop-guesses compares each picture with other pictures, but" in done.err


def test_the_best_of_several_is_not_edited(tmp_path: Path, cli: Any) -> None:
    """Its score would be that of another text."""
    done = cli(
        "caption", "scenes", "scenes:plain?n=3", "--best-of", "3", "--scorer", "scenes", "--drop-guesses",
        "-o", tmp_path / "x.jsonl",
    )  # fmt: skip
    assert (
        done.status == 2
        and "--drop-guesses and --best-of cannot be combined, because --best-of scores captions before" in done.err
    )
