"""The recipes of real photos, a few steps each: tiny encoders for pretrained ones, pictures in Flickr8k's layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from drawn_flickr8k import write_flickr8k
from transformers import BertConfig, BertModel, CLIPImageProcessorPil, ResNetConfig
from transformers import ResNetModel as ResNet

from replication import photos
from tellapart.models.tokens import word_tokenizer
from tellapart.recipe.reading import find_recipe, read_recipe
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
    assert header[-1] == "truthful − MLE, consensus, 95 %"
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
