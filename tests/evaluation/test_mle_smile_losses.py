"""``tellapart report tokens``: the loss of each token under MLE and SMILE, as figure 5 of paper 1 draws it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from command_line import Cli

from tellapart.captioners import load_captioner
from tellapart.objectives import mle_loss
from tellapart.objectives.smile import smile_loss
from tellapart.scenes import Scenes


def test_the_losses_add_up_to_those_of_the_objectives(tiny_captioner: Path, cli: Cli, tmp_path: Path) -> None:
    """Their means are `mle_loss` and `smile_loss`; the drawing is XML with two bars a token, whatever the caption."""
    out, text = tmp_path / "tokens.svg", "a red circle left of a blue square"
    data = "scenes:plain?split=test&n=2"
    done = cli("report", "tokens", str(tiny_captioner), data, "--caption", text, "-o", out, "--json", "--device", "cpu")
    assert done.status == 0, done.err
    tokens = json.loads(done.out)["tokens"]
    captioner, item = load_captioner(str(tiny_captioner), "cpu"), Scenes(2, split="test")[0].item()
    labels, valid = captioner.pad(captioner.tokenize([text]))
    with torch.no_grad():
        visual = captioner.encode(captioner.pixels([item.picture.image()]))
        logits = captioner.logits(visual, labels, valid).float()
    count = int(valid.sum())
    assert len(tokens) == count
    assert sum(token["mle"] for token in tokens) / count == pytest.approx(float(mle_loss(logits, labels, valid)), 1e-4)
    smile = float(smile_loss(logits, labels, valid))
    assert sum(token["smile"] for token in tokens) / count == pytest.approx(smile, 1e-4)
    assert all(token["smile"] <= token["mle"] + 1e-5 for token in tokens)
    drawn = ElementTree.parse(out).getroot()
    bars = [each for each in drawn.iter() if each.tag.endswith("rect") and len(each)]
    assert len(bars) == 2 * count
    assert cli("report", "tokens", str(tiny_captioner), data, "--id", "nobody").line.count("has no picture 'nobody'")
    table = cli("report", "tokens", str(tiny_captioner), data, "--caption", "a <b> & [c]", "-o", out)
    assert table.status == 0 and ElementTree.parse(out).getroot() is not None
