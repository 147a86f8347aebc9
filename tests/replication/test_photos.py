"""The recipes of real photos, a few steps each: tiny encoders for pretrained ones, pictures in Flickr8k's layout."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import tomli_w
import torch
from drawn_flickr8k import write_flickr8k
from transformers import BertConfig, BertModel, CLIPImageProcessorPil, ResNetConfig
from transformers import ResNetModel as ResNet
from typer.testing import CliRunner

from replication import photo_findings, photos
from replication.__main__ import app
from replication.lab import joined
from tellapart.cli.whole_app import app_of
from tellapart.models.word_tokenizer import word_tokenizer
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.training.runs import train

SMALL = ["training.batch_size=8", "training.log_every=1", "training.warmup=0", "validation.every=2", "training.steps=2"]

pytestmark = pytest.mark.long


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Folders of a tiny CNN and a tiny BERT, beside drawn photos."""
    flickr = write_flickr8k(tmp_path, monkeypatch)
    texts = [line.split("\t")[1] for line in (flickr / "Flickr8k.token.txt").read_text().splitlines()]
    tokenizer = word_tokenizer(texts, max_length=64)
    torch.manual_seed(0)
    models = {
        "vision": ResNet(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")),
        "text": BertModel(
            BertConfig(vocab_size=len(tokenizer), hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
                       intermediate_size=24, max_position_embeddings=64, pad_token_id=0)
        ),
    }  # fmt: skip
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    tokenizer.save_pretrained(tmp_path / "text")
    CLIPImageProcessorPil(size={"height": 64, "width": 64}, do_center_crop=False).save_pretrained(tmp_path / "vision")
    return {name: str(tmp_path / name) for name in models}


def test_every_arm_is_trained_measured_and_shown(parts: dict[str, str], tmp_path: Path) -> None:
    encoders = [f"scorer.new.vision={parts['vision']}", f"scorer.new.text={parts['text']}"]
    names = ["photos_scorer", "photos_judge"]
    made = [train(read_recipe(find_recipe(name), [*SMALL, *encoders]), evaluate=False).folder for name in names]
    tiny = [
        "captioner.new.grid=2",
        "captioner.new.width=16",
        "captioner.new.layers=1",
        "captioner.new.heads=2",
        "captioner.new.min_count=1",
    ]
    settings = [*SMALL, *tiny, f"captioner.new.vision={parts['vision']}", f"scorer.name={made[0]}"]
    start = train(read_recipe(find_recipe("photos_mle"), settings), evaluate=False).folder
    settings = [*SMALL, f"captioner.name={start}", f"scorer.name={made[0]}", f"evaluation.eval_scorers=['{made[1]}']"]
    found = photos.run_photos((0,), settings)
    assert found.page.is_file() and all(len(runs) == 1 for runs in found.runs.values())
    header, *rows = photos.table_lines(found)
    assert header[-1] == "truthful − MLE, consensus, 95%"
    assert header[1:7] == ("MLE", "MLE, consensus", "SMILE", "self-retrieval", "truthful", "human") and len(
        rows
    ) == len(photos.METRICS)
    systems = json.loads(json.dumps(found.to_json()))["systems"]
    assert all(set(photos.METRICS) <= set(own) for own in systems.values())
    (run,) = found.runs["self-retrieval"]
    run.recipe = run.recipe.model_copy(
        update={"evaluation": run.recipe.evaluation.model_copy(update={"eval_scorers": (str(made[0]),)})}
    )
    with pytest.raises(SystemExit, match="gave the reward"):
        photos.measure({}, run)


@pytest.fixture
def findings(parts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rows with tiny encoders; returns the settings of arms of two steps."""
    for name in ("SCORER", "JUDGE"):
        recipe = read_recipe(
            find_recipe(getattr(photo_findings, name)),
            [*SMALL, f"scorer.new.vision={parts['vision']}", f"scorer.new.text={parts['text']}"],
        )
        path = tmp_path / f"{name.lower()}.toml"
        path.write_text(tomli_w.dumps(recipe.dump(None, mode="json", exclude_none=True)))
        monkeypatch.setattr(photo_findings, name, str(path))
    tiny = {"vision": parts["vision"], "grid": 2, "width": 16, "layers": 1, "heads": 2, "min_count": 1}
    monkeypatch.setattr(photo_findings, "NEW", {**photo_findings.NEW, **tiny})
    monkeypatch.setattr(photo_findings, "START", {**photo_findings.START, "captioner": {"new": photo_findings.NEW}})
    monkeypatch.setattr(photo_findings, "ALIKE", {**photo_findings.ALIKE, "hard": 2, "neighbours": 4})  # few photos
    return [*SMALL, "training.checkpoint_every=2", "training.precision=fp32"]


def test_findings_are_trained_measured_and_resumed(findings: list[str]) -> None:
    ids = ["photo-smile-length", "photo-sr-rich", "photo-sr-people", "photo-bags", "photo-exploration"]
    results = photo_findings.run_findings(ids, (0,), findings)
    assert [one.claim.id for one in results] == ids and all(len(one.parts) == len(one.claim.parts) for one in results)
    assert all(math.isfinite(part.value) for one in results[:4] for part in one.parts)
    people = {m.arm: value for m, value in results[2].means.items()}
    (part,) = results[2].parts
    assert part.value == pytest.approx(people["sr"] - sum(people[f"person{n}"] for n in range(5)) / 5)
    runs = sorted(photo_findings.FOLDER.glob("*/run.json"))
    ages = [run.stat().st_mtime_ns for run in runs]
    again = photo_findings.run_findings(ids, (0,), findings)
    assert [one.to_json()["parts"] for one in again] == [one.to_json()["parts"] for one in results]
    assert [run.stat().st_mtime_ns for run in runs] == ages


def test_every_arm_of_the_findings_has_a_recipe_and_every_row_its_arms(findings: list[str]) -> None:
    lab, used = photo_findings.make_lab(findings), set[str]()
    for claim in photo_findings.CLAIMS:
        assert claim.control is not None
        for one in claim.measurements():
            for name in lab.lineage(one.arm):
                used.add(name)
                assert lab.arms[name].table is None or lab.recipe(name, 0).seed == 0
    assert used == set(lab.arms)


def test_joined_references_say_what_the_first_lacks() -> None:
    texts = ["a dog runs .", "a dog", "A brown dog near a wet road ."]
    assert joined(texts)[0] == "a dog runs and A brown dog near a wet road ." and joined(["a dog"]) == ["a dog"]
    assert len(joined(texts)) == 3


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["--seeds", "verdict"], "--seeds verdict requires --findings; add --findings"),
        (["--rows", "photo-bags"], "--rows requires --findings; add --findings"),
        (["--findings", "--page", "a.html"], "--page shows the table of systems, which"),
        (["--findings", "--rows", "photo-bag"], "did you mean 'photo-bags'"),
        (["--findings", "--seeds", "0,41"], "seed 41 is reserved for the verdict of python -m replication photos"),
        (["--findings", "--seeds", "verdict", "--rows", "photo-bags"], "a verdict covers all findings; remove --rows"),
        (["--findings", "--seeds", "verdict", "--power"], "computed before a verdict"),
    ],
)
def test_what_cannot_be_asked_of_the_findings_is_one_line(typed: list[str], line: str) -> None:
    found = CliRunner().invoke(app_of([app]), ["photos", *typed])
    assert found.exit_code and line in f"{found.output}{found.exception}"
