"""CLIPScore and its kin, and texts beyond the window: against plain loops, on real small models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval
from tellapart.metrics import clipsc, clipscore, refclipscore
from tellapart.metrics.slots import CaptionSlot
from tellapart.scorers import load_scorer


def test_clipscore_and_clipsc_by_hand() -> None:
    text_ND, image_ND = np.array([[1.0, 0], [0.6, 0.8], [-1, 0]]), np.array([[1.0, 0]] * 3)
    corpus, value_N = clipscore(text_ND, image_ND)
    assert value_N.tolist() == [2.5, 1.5, 0] and corpus == pytest.approx(4 / 3)
    assert clipsc(text_ND, image_ND)[1].tolist() == [100, 60, -100]


def test_refclipscore_takes_the_nearest_reference() -> None:
    text_ND, image_ND = np.array([[1.0, 0], [1, 0], [1, 0]]), np.array([[0.6, 0.8], [0.6, 0.8], [-1, 0]])
    references = [np.array([[0.8, 0.6], [0, 1]]), np.array([[-1.0, 0]]), np.array([[1.0, 0]])]
    corpus, value_N = refclipscore(text_ND, image_ND, references)
    assert value_N.tolist() == [pytest.approx(2 / (1 / 1.5 + 1 / 0.8)), 0, 0]  # no reference near; picture not near
    assert corpus == pytest.approx(value_N[0] / 3)


# With a scorer.


def test_reference_free_metrics_in_an_evaluation(tiny_scorer: Path) -> None:
    scorer = load_scorer(str(tiny_scorer))
    items = list(open_data("scenes:plain?n=8&split=test"))
    captions = {item.id: item.references[1] for item in items}
    results = evaluate({"said": captions}, items=items, scorer=scorer, resamples=20)
    image_ND = scorer.encoder.encode(scorer.pixels([item.picture.image() for item in items])).numpy()

    def encoded(texts: list[str], prefix: str = "") -> np.ndarray:
        return scorer.text_features([prefix + text for text in texts]).numpy()

    said, prefix = list(captions.values()), "A photo depicts "
    expected = {
        "clipsc": clipsc(encoded(said), image_ND)[1],
        "clipscore": 100 * clipscore(encoded(said, prefix), image_ND)[1],
        "refclipscore": 100
        * refclipscore(encoded(said, prefix), image_ND, [encoded(list(i.references), prefix) for i in items])[1],
    }
    for name, value_N in expected.items():
        np.testing.assert_allclose(results.values["said"][name], value_N, atol=2e-4)
    assert results.signatures["clipsc"].startswith("clipsc|100cos|prefix:none|scorer:scorer@")
    assert "max(cos(reference),0)" in results.signatures["refclipscore"]


LONG = " ".join(["a red circle and a blue star."] * 3 + ["a green tree on sand."] * 15)


def test_texts_beyond_the_window_are_counted_and_cut_or_scored_by_sentence(tiny_scorer: Path) -> None:
    scorer = load_scorer(str(tiny_scorer))
    assert scorer.lengths([LONG])[0] > scorer.window
    cut = EvalContext(["1", "2"], scorer=scorer)
    slot = CaptionSlot([LONG, "a red circle"])
    np.testing.assert_allclose(cut.text_features(slot), scorer.text_features(slot.captions).numpy(), atol=1e-6)
    assert cut.long_note() == (
        f"1 distinct texts exceed the window of {tiny_scorer} ({scorer.window} tokens); truncated "
        "(--set long_texts=sentences scores them by sentence)"
    )
    whole = EvalContext(["1", "2"], scorer=scorer, inputs=EvalInputs(long_texts="sentences"))
    sentence_SD = scorer.text_features(["a red circle and a blue star."] * 3 + ["a green tree on sand."] * 15).numpy()
    found = whole.text_features(slot)
    np.testing.assert_allclose(found[0], sentence_SD.mean(0), atol=1e-6)
    np.testing.assert_allclose(found[1], scorer.text_features(["a red circle"])[0].numpy(), atol=1e-6)
    assert "scored by sentence" in str(whole.long_note()) and "truncated" not in str(whole.long_note())
    assert whole.scorer_name() == cut.scorer_name() + "|long:by-sentence"
    endless = EvalContext(["1"], scorer=scorer, inputs=EvalInputs(long_texts="sentences"))
    endless.text_features(CaptionSlot(["red " * 200]))
    assert "scored by sentence, and 1 sentences that also exceed it were truncated" in str(endless.long_note())
    assert EvalContext(["1"], scorer=scorer).long_note() is None


def test_the_command_says_how_many_texts_were_cut(tiny_scorer: Path, tmp_path: Path) -> None:
    data = "scenes:plain?n=4&split=test"
    items = list(open_data(data))
    (tmp_path / "long.csv").write_text("id,caption\n" + "".join(f"{item.id},{LONG}\n" for item in items))
    settings = {"data": data, "scorer": str(tiny_scorer), "metrics": ["clipsc"], "resamples": 5}
    cut = run_eval(EvalOptions([tmp_path / "long.csv"], **settings))  # type: ignore[arg-type]
    whole = run_eval(EvalOptions([tmp_path / "long.csv"], long_texts="sentences", **settings))  # type: ignore[arg-type]
    assert any("1 distinct texts exceed" in note and "truncated (--set" in note for note in cut.notes)
    assert any("scored by sentence" in note for note in whole.notes)
    assert cut.systems["long"]["clipsc"].value != whole.systems["long"]["clipsc"].value
    assert cut.signatures["clipsc"] != whole.signatures["clipsc"]
    for wrong in ({"long_texts": "shorten"}, {"emscore_idf": "both"}):
        with pytest.raises(UsageError, match="expected one of"):
            run_eval(EvalOptions([tmp_path / "long.csv"], **settings, **wrong))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="require a scorer; add --scorer MODEL"):
        run_eval(EvalOptions([tmp_path / "long.csv"], long_texts="sentences"))
