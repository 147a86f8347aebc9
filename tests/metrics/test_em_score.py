"""EMScore of clips: against plain loops, and on real small models."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from real_data import DATA

from tellapart.data import open_data
from tellapart.data.pictures import ClipFile
from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.metrics import emscore
from tellapart.metrics.em_score import token_idf
from tellapart.scorers import load_scorer


def unit(array: np.ndarray) -> np.ndarray:
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def plain_emscore(text, tokens, frames, weights):  # type: ignore[no-untyped-def]
    mean = unit(sum(frames) / len(frames))
    coarse = sum(a * b for a, b in zip(text, mean, strict=True))
    best = [max(float(token @ frame) for frame in frames) for token in tokens]
    precision = sum(w * b for w, b in zip(weights, best, strict=True)) / sum(weights)
    recall = sum(max(float(token @ frame) for token in tokens) for frame in frames) / len(frames)
    f = 2 * precision * recall / (precision + recall)
    return [(value + coarse) / 2 for value in (precision, recall, f)]


def test_emscore_against_plain_loops() -> None:
    rng = np.random.default_rng(0)
    texts = unit(rng.normal(size=(4, 8)))
    tokens = [unit(rng.normal(size=(n, 8))) for n in (3, 5, 7, 4)]
    frames = [unit(rng.normal(size=(n, 8))) for n in (2, 6, 1, 3)]
    weights = [rng.random(len(own)) for own in tokens]
    for given in (None, weights):
        found = emscore(texts, tokens, frames, given)
        used = weights if given else [np.ones(len(own)) for own in tokens]
        expected = [plain_emscore(*each) for each in zip(texts, tokens, frames, used, strict=True)]
        np.testing.assert_allclose(np.array([part[1] for part in found]).T, expected, atol=1e-12)
        assert found.f[0] == pytest.approx(np.mean([row[2] for row in expected]))
    mute = emscore(texts[:1], tokens[:1], frames[:1], [np.zeros(3)])
    assert math.isnan(mute.precision[1][0]) and not math.isnan(mute.recall[1][0])


def test_idf_is_that_of_the_texts_and_the_end_is_worth_their_mean() -> None:
    documents = [[1, 5, 5, 2], [1, 6, 2], [1, 5, 2]]
    weight = token_idf(documents, end=2, padding=None)
    assert weight[5] == pytest.approx(math.log(4 / 3)) and weight[6] == pytest.approx(math.log(4 / 2))
    assert weight[1] == 0 and weight[99] == pytest.approx(math.log(4))
    assert weight[2] == pytest.approx((math.log(4 / 3) + math.log(2)) / 4)  # of 1, 5, 6 and the end itself
    assert weight[0] == pytest.approx(math.log(4))
    # EMScore's program pads texts to CLIP's 77 tokens with 0, its "!": one more token that was seen, worth nothing.
    padded = token_idf(documents, end=2)
    assert padded[0] == 0 and padded[5] == weight[5]
    assert padded[2] == pytest.approx((math.log(4 / 3) + math.log(2)) / 5)
    # Two texts have a 0, one of them a "!" of its own; the longest is not padded.
    assert token_idf([[1, 5, 5, 2], [1, 0, 2], [1, 5, 2]], end=2, window=4)[0] == pytest.approx(math.log(4 / 3))


def test_the_end_tokens_feature_is_the_texts_own(tiny_scorer: Path) -> None:
    scorer = load_scorer(str(tiny_scorer))
    texts = ["a red circle", "a large blue star above a small green tree", "snow"]
    tokens, text_ND = scorer.token_features(texts, batch_size=2), scorer.text_features(texts).numpy()
    assert [row for row, _ in tokens] == scorer.tokenize(texts)
    for (row, feature_TD), text_D in zip(tokens, text_ND, strict=True):
        assert feature_TD.shape == (len(row), len(text_D))
        np.testing.assert_allclose(feature_TD[-1], text_D, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(feature_TD, axis=1), 1, atol=1e-5)


def test_clips_are_ranked_by_emscores_f(tiny_scorer: Path) -> None:
    """Paper 1, Table 6: a caption's rank is how many other clips of the set have a higher F with it."""
    scorer = load_scorer(str(tiny_scorer))
    items = list(open_data("scenes:plain?frames=4&n=8&split=test"))
    captions = {item.id: item.references[0] for item in items}
    names = ["recall@1.emscore", "recall@5.emscore", "emscore_f"]
    results = evaluate({"said": captions}, items=items, scorer=scorer, metrics=names, resamples=20, chance=True)
    for place, item in enumerate(items):
        swapped = {other.id: captions[item.id] for other in items}  # this caption beside every clip
        score_N = evaluate({"x": swapped}, items=items, scorer=scorer, metrics=names[2:], resamples=5).values["x"][
            "emscore_f"
        ]
        rank = (score_N > score_N[place] + 1e-4).sum()
        assert [results.values["said"][name][place] for name in names[:2]] == [100.0 * (rank < 1), 100.0 * (rank < 5)]
    assert 0 < results.systems["said"]["recall@5.emscore"].value < 100
    assert results.systems["chance"]["recall@1.emscore"].value == pytest.approx(100 / 8)
    assert "pool:all-clips|match:EMScore-F|idf:none|frames:4" in results.signatures["recall@1.emscore"]
    few = evaluate({"said": captions}, items=items, scorer=scorer, resamples=5)
    assert "recall@1.emscore" in few.systems["said"]


@pytest.mark.parametrize("idf", [None, "references", "captions"])
def test_emscore_of_clips_end_to_end(tiny_scorer: Path, idf: str | None) -> None:
    import torch

    scorer = load_scorer(str(tiny_scorer))
    items = list(open_data("scenes:plain?frames=4&n=6&split=test"))
    captions = {item.id: item.references[0] for item in items}
    names = ["emscore_p", "emscore_r", "emscore_f"]
    results = evaluate({"said": captions}, items=items, scorer=scorer, metrics=names, resamples=20, emscore_idf=idf)
    weight = None
    if idf:
        documents = [text for item in items for text in item.references] if idf == "references" else captions.values()
        weight = token_idf(scorer.tokenize(list(documents)), scorer.tokenizer.eos_token_id, window=scorer.window)
    for number, item in enumerate(items):
        frames = torch.cat([scorer.encoder.encode(scorer.pixels([frame])) for frame in item.picture.frames()]).numpy()
        row, tokens = scorer.token_features([captions[item.id]])[0]
        weights = [1.0] * len(row) if weight is None else [weight[token] for token in row]
        expected = plain_emscore(scorer.text_features([captions[item.id]])[0].numpy(), tokens, frames, weights)
        found = [results.values["said"][name][number] for name in names]
        np.testing.assert_allclose(found, 100 * np.array(expected), atol=1e-3)
    if idf == "captions":  # are each system's own
        other = {item.id: item.truth.description for item in items}
        alone = evaluate({"other": other}, items=items, scorer=scorer, metrics=names, resamples=5, emscore_idf=idf)
        both = {"said": captions, "other": other}
        beside = evaluate(both, items=items, scorer=scorer, metrics=names, resamples=5, emscore_idf=idf)
        assert beside.systems["other"]["emscore_p"].value == pytest.approx(alone.systems["other"]["emscore_p"].value)
    signature = results.signatures["emscore_f"]
    assert f"|idf:{idf + ',padding-counted' if idf else 'none'}|" in signature and "|frames:4|" in signature
    assert ("|references:" in signature) == (idf == "references")
    assert results.systems["said"]["emscore_p"].n == 6


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "clips").is_dir(), reason="no clips in ../shared/data")
def test_emscore_and_retrieval_of_real_clips(tiny_scorer: Path, tmp_path: Path) -> None:
    import torch

    pytest.importorskip("av")
    for name in ("video9971.mp4", "video9974.mp4", "WTf5EgVY5uU_124_128.avi"):
        (tmp_path / name).symlink_to(DATA / "clips" / name)
    written = json.loads((DATA / "clips" / "references.json").read_text())
    scorer, items = load_scorer(str(tiny_scorer)), list(open_data(f"folder:{tmp_path}"))
    captions = {item.id: written[item.id][0] for item in items}
    names = ["emscore_p", "emscore_r", "emscore_f", "clipsc", "recall@1.lookalike"]
    results = evaluate({"said": captions}, items=items, scorer=scorer, metrics=names, resamples=5, lookalike=3)
    clips, texts = [], scorer.text_features(list(captions.values())).numpy()
    for number, item in enumerate(items):
        frames = scorer.image_features(scorer.pixels(ClipFile(tmp_path / item.id).frames(8))).detach().numpy()
        row, tokens = scorer.token_features([captions[item.id]])[0]
        expected = plain_emscore(texts[number], tokens, frames, [1.0] * len(row))
        clips.append(unit(frames.mean(0)))
        found = [results.values["said"][name][number] for name in names[:4]]
        np.testing.assert_allclose(found, 100 * np.array([*expected, texts[number] @ clips[-1]]), atol=1e-3)
    cosine_NN = torch.tensor(texts @ np.stack(clips).T)
    hits_N = 100 * (cosine_NN.diagonal() >= cosine_NN.max(1).values - 1e-7).double().numpy()
    np.testing.assert_allclose(results.values["said"]["recall@1.lookalike"], hits_N)
    assert "|frames:8|" in results.signatures["emscore_f"]
    assert "|clips:mean-of-8-frames" in results.signatures["clipsc"]


def test_emscore_needs_clips_and_tokens(tiny_scorer: Path) -> None:
    items = list(open_data("scenes:plain?n=4"))
    captions = {item.id: "a red circle" for item in items}
    scorer = load_scorer(str(tiny_scorer))
    with pytest.raises(UsageError, match=r"'emscore_f' requires clips; add --data 'scenes:plain\?frames=8'"):
        evaluate({"s": captions}, items=items, scorer=scorer, metrics=["emscore_f"])
    assert "emscore_f" not in evaluate({"s": captions}, items=items, scorer=scorer, resamples=5).signatures
    scorer.model.config.text_config.model_type = "siglip_text_model"
    with pytest.raises(TellapartError, match="does not return token features; expected a"):
        scorer.token_features(["a"])
