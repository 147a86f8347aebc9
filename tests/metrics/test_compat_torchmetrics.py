"""Metric objects that are fed batch by batch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tellapart.compat.torchmetrics import CaptionMetrics
from tellapart.errors import UsageError
from tellapart.metrics import bleu, cider_d

CAPTIONS = ["a dog runs on the grass", "two cats sleep on a bed", "a man rides a red bike"]
REFERENCES = [["a dog is running on grass", "the dog runs"], ["cats sleep on a bed"], ["a man on a bike", "a cyclist"]]


def test_batches_give_the_corpus_number() -> None:
    metric = CaptionMetrics("bleu4", "cider", "length")
    batch = metric(CAPTIONS[:2], REFERENCES[:2])
    metric.update(CAPTIONS[2:], REFERENCES[2:])
    whole = metric.compute()
    assert whole["bleu4"] == bleu(CAPTIONS, REFERENCES)[0] and whole["cider"] == cider_d(CAPTIONS, REFERENCES)[0]
    assert batch["cider"] == cider_d(CAPTIONS[:2], REFERENCES[:2])[0] != whole["cider"]
    assert whole["length"] == 6
    metric.reset()
    metric.update("a dog", ["a dog"])  # one text each
    assert metric.compute()["bleu4"] < 1e-3 and metric.compute()["length"] == 2


def test_errors_are_one_line() -> None:
    with pytest.raises(UsageError, match="no captions to score; call"):
        CaptionMetrics("cider").compute()
    with pytest.raises(UsageError, match="2 captions and 1 entries"):
        CaptionMetrics("cider").update(["a", "b"], [["a"]])
    with pytest.raises(UsageError, match="' requires more than captions and"):
        CaptionMetrics("clipscore")
    with pytest.raises(UsageError, match="did you mean 'cider'"):
        CaptionMetrics("cidr")


RANK = """
import json, sys, torch.distributed as dist
from tellapart.compat.torchmetrics import CaptionMetrics
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
captions, references = json.loads(sys.argv[3])
metric = CaptionMetrics("cider")
metric.update(captions[rank::2], references[rank::2])
print(json.dumps(metric.compute()))
dist.destroy_process_group()
"""


@pytest.mark.long
def test_ranks_compute_the_corpus_of_all(tmp_path) -> None:  # type: ignore[no-untyped-def]
    texts = json.dumps([CAPTIONS, REFERENCES])
    started = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path / "meet"), texts], stdout=-1, text=True)
        for rank in range(2)
    ]
    found = [json.loads(each.communicate(timeout=120)[0].splitlines()[-1])["cider"] for each in started]
    assert found == pytest.approx([cider_d(CAPTIONS, REFERENCES)[0]] * 2)
