"""``benchmarks growth``: real work in processes of their own, one row for time and one for memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import Cli

from benchmarks import growth, process
from benchmarks.growth_data import REFERENCES, Captions, WordScorer, image_features
from tellapart.errors import UsageError


@pytest.mark.long
def test_a_size_is_measured_for_real(cli: Cli) -> None:
    done = cli(
        "growth",
        "--what",
        "eval",
        "--to",
        "1e3",
        "--repeat",
        "1",
        "--json",
        package="benchmarks.__main__",
    )
    time, memory = json.loads(done.out)["rows"]
    assert time["work"] == "eval of 1,000 captions: time" and time["unit"] == "s" and time["ours"] > 0.05
    assert memory["work"] == "eval of 1,000 captions: peak memory" and 100 < memory["ours"] < 2000
    assert "eval of 1,000 captions" in done.err


def test_the_rows_and_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four sizes, as measured elsewhere."""
    asked = []

    def run(command: Sequence[str]) -> process.CompletedRun:
        what, count = command[-2], int(command[-1])
        asked.append((what, count))
        return process.CompletedRun({"seconds": 0.4 + count / 2000}, 1.0, 300 + count / 100)

    monkeypatch.setattr(process, "run", run)
    rows = {row.work: row for row in growth.rows(1, what="eval", to=1e6)}
    assert asked == [("eval", 10**power) for power in (3, 4, 5, 6)]
    memory = rows["eval of 100,000 captions: peak memory, against 2 GiB"]
    assert memory.ratio == 2048 / 1300 and memory.goal == 1 and memory.met
    exponent = rows["eval of 100,000 captions: exponent of the time since 10,000, against 1.15"]
    assert exponent.ours == pytest.approx(np.log10(50.4 / 5.4)) and exponent.met


def test_wrong_requests_are_one_line(cli: Cli) -> None:
    with pytest.raises(UsageError, match="--what is 'evil'; did you mean 'eval'"):
        growth.rows(1, what="evil")
    with pytest.raises(UsageError, match="--to is 10; expected 1,000 to 1,000,000 items"):
        growth.rows(1, what="bags", to=10)
    assert cli("metrics", "--to", "1e4", package="benchmarks.__main__").line == "metrics has no option --to; remove it"


def test_synthetic_texts_are_like_captions() -> None:
    made = Captions(400)
    references, captions = made.references(), made.texts(10)
    lengths = [len(text.split()) for text in captions]
    assert len(captions) == len(references) == 400 and all(len(texts) == REFERENCES for texts in references)
    assert min(lengths) >= 8 and max(lengths) <= 14 and 10 < np.mean(lengths) < 12
    shared = [len(set(text.split()) & set(texts[0].split())) for text, texts in zip(captions, references, strict=True)]
    assert 3 < np.mean(shared) < 9, "another text about the same picture takes over some words"
    scorer = WordScorer(made.words)
    image_ND = image_features(scorer, [texts[0] for texts in references])
    text_ND = scorer.text_features(captions).numpy()
    np.testing.assert_allclose(np.linalg.norm(image_ND, axis=1), 1, atol=1e-5)
    score_NN = text_ND @ image_ND.T
    hits = (score_NN.argmax(1) == np.arange(400)).mean()
    assert 0.3 < hits < 1, "neither hopeless nor trivial"


def test_features_that_do_not_fit_on_the_disk_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tellapart.captioners import load_captioner
    from tellapart.data import open_data
    from tellapart.features.row_makers import encoder_rows

    maker = encoder_rows(load_captioner("scenes", "cpu", "fp32").encoder)
    row = maker.rows([maker.of(item.picture) for item in open_data("scenes:plain?n=1")])
    assert row[0].nbytes == growth.ROW_BYTES
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=13 * 10**9))
    with pytest.raises(
        UsageError, match=r"the features of 1,000,000 pictures need 13.5 GB in .*, which has 13.0 GB free; set"
    ):
        growth.rows(1, what="caption", to=1e6)
