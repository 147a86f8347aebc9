"""Verifiers of claims: a scene's truth, references, a scorer; CHAIR against the authors' rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from claims_in_scenes import as_parsed
from command_line import Cli
from PIL import Image
from real_data import DATA

from tellapart.errors import UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.facts import FINE_KINDS
from tellapart.evaluation.facts.by_references import verify_references
from tellapart.evaluation.facts.by_scorer import verify_scorer, whole_sentences
from tellapart.evaluation.facts.chair import Chair
from tellapart.evaluation.facts.coco_instances import read_instances
from tellapart.evaluation.facts.object_inputs import read_synonyms
from tellapart.evaluation.facts.unmatched_claims import unmatched_claims
from tellapart.evaluation.facts.verdict import Verdict, rate_statistic, rates
from tellapart.evaluation.human_judgements.agreement import spearman
from tellapart.language.synonyms import NO_SYNONYMS
from tellapart.scenes import Scenes
from tellapart.scenes.claims import count_claims

pytest.importorskip("HanTa")

SYNONYMS = """person, girl, boy, man, woman, kid, people
bicycle, bike, cycle
dog, puppy, beagle
chair, seat, stool
toilet
fire hydrant
hot dog
bird, ostrich, owl
tie
couch, sofa
"""


@pytest.fixture
def synonyms_file(tmp_path: Path) -> Path:
    (tmp_path / "synonyms.txt").write_text(SYNONYMS)
    return tmp_path / "synonyms.txt"


def scene_captions(scenes: int) -> list[tuple[str, object]]:
    """For every scene four captions, true and false: its own, its full description, a look-alike's, a stranger's."""
    world = Scenes(n=scenes, split="test", seed=1, detail=0.7)
    truth = [world[number] for number in range(scenes)]
    rows = []
    for number, scene in enumerate(truth):
        others = (truth[number ^ 1], truth[(number + scenes // 2) % scenes])
        rows += [(scene.references[0], scene), (scene.description, scene)]
        rows += [(others[0].references[1], scene), (others[1].references[2], scene)]
    return rows


@pytest.mark.parametrize(
    "scenes", [pytest.param(40, id="160 captions"), pytest.param(500, id="2000 captions", marks=pytest.mark.long)]
)
def test_facts_agree_with_the_exact_truth(scenes: int) -> None:
    """The generic extractor with the exact verifier ranks captions as the world's own grammar does."""
    exact, ours = [], []
    for caption, scene in scene_captions(scenes):
        counts = count_claims(caption, scene)  # type: ignore[arg-type]
        exact.append(Verdict(counts.claims, counts.correct, counts.attributes, counts.recalled))
        counts = count_claims(as_parsed(caption), scene)  # type: ignore[arg-type]
        ours.append(Verdict(counts.claims, counts.correct, counts.attributes, counts.recalled))
    exact_N3, ours_N3 = rates(exact), rates(ours)
    known_N = ~np.isnan(exact_N3[:, 0]) & ~np.isnan(ours_N3[:, 0])
    assert known_N.mean() > 0.99
    found = [spearman(exact_N3[known_N, which], ours_N3[known_N, which]) for which in range(3)]
    print("Spearman's rho of precision, recall, F:", [round(value, 3) for value in found])
    assert min(found) >= 0.95


@pytest.mark.long
def test_how_far_the_other_verifiers_agree_with_the_exact_truth() -> None:
    """References and a scorer know less: the rank correlations are printed, and must be clearly above chance."""
    from tellapart.features.store import FeatureStore
    from tellapart.scorers import load_scorer

    rows = scene_captions(500)
    captions, scenes = [caption for caption, _ in rows], [scene for _, scene in rows]
    counts = [count_claims(caption, scene) for caption, scene in rows]  # type: ignore[arg-type]
    exact_N3 = rates([Verdict(c.claims, c.correct, c.attributes, c.recalled) for c in counts])
    references_N3 = rates([verify_references(text, scene.references) for text, scene in rows])  # type: ignore[attr-defined]
    scorer = load_scorer("scenes")
    items = [scene.item() for scene in scenes]  # type: ignore[attr-defined]
    image_ND = np.asarray(FeatureStore().features(items, scorer.encoder))
    support_N3 = rates(
        verify_scorer(captions, image_ND, lambda texts: scorer.text_features(texts).float().cpu().numpy())
    )
    found = {
        **{f"references, {name}": (references_N3[:, n], exact_N3[:, n]) for n, name in enumerate(("P", "R", "F"))},
        "scorer, P": (support_N3[:, 0], exact_N3[:, 0]),
    }
    for name, (ours_N, exact_N) in found.items():
        known_N = ~np.isnan(ours_N) & ~np.isnan(exact_N)
        rho = spearman(ours_N[known_N], exact_N[known_N])
        print(f"{name}: Spearman's rho with the exact truth {rho:.3f}, n={known_N.sum()}")
        assert rho > 0.25, name


def test_references_make_a_claim_true(synonyms_file: Path) -> None:
    references = ["A brown dog runs on green grass.", "A puppy with a ball."]
    found = verify_references("a brown beagle runs on red grass", references)
    caption = "a brown beagle runs on red grass"
    assert {caption[start:end] for start, end, _ in found.false} == {"brown", "beagle", "runs", "on", "red"}
    known = read_synonyms(synonyms_file)
    found = verify_references(caption, references, known)
    # objects dog, grass; brown, run of the dog; on: all true but the red grass
    assert (found.claims, found.correct) == (6, 5) and [caption[a:b] for a, b, _ in found.false] == ["red"]
    assert found.recall == pytest.approx(5 / 8)  # not: green grass, ball, with
    assert np.isnan(verify_references("", references).precision) and verify_references("", references).f == 0


def test_chair_is_the_authors_count(synonyms_file: Path) -> None:
    chair = Chair(read_synonyms(synonyms_file))
    assert [name for name, *_ in chair.objects("Two Men and a puppy on a toilet seat, bikes, baby bird")] == [
        "person", "dog", "toilet", "bicycle", "bird",
    ]  # fmt: skip
    found = chair.verify("A man sits on a chair with a hot dog and a dog", ["A woman eats hot dogs.", "People, seat"])
    assert (found.claims, found.correct, found.expected, found.recalled) == (4, 3, 3, 3)
    assert found.false == ((43, 46, "no such object in the references"),)


def test_chair_in_eval_with_cocos_instances(cli: Cli, synonyms_file: Path, tmp_path: Path) -> None:
    captions = {"000000000042": "a dog near a bicycle", "000000000073": "a dog on a couch"}
    for name, value in (("captions", captions), ("references", {key: ["A puppy."] for key in captions})):
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    instances = {
        "images": [{"id": 42, "file_name": "000000000042.jpg"}, {"id": 73, "file_name": "000000000073.jpg"}],
        "categories": [{"id": 2, "name": "bicycle"}, {"id": 63, "name": "couch"}],
        "annotations": [{"image_id": 42, "category_id": 2}],
    }
    (tmp_path / "instances_val2017.json").write_text(json.dumps(instances))
    words = ["eval", "--captions", tmp_path / "captions.json", "--references", tmp_path / "references.json"]
    words += ["--metrics", "chair_i,chair_s,coverage", "--set", f"synonyms={synonyms_file}", "--json"]
    value = json.loads(cli(*words, "--set", f"instances={tmp_path}/instances_val2017.json").out)
    found = {name: interval["value"] for name, interval in value["systems"]["captions"].items()}
    assert found == pytest.approx({"chair_i": 25.0, "chair_s": 50.0, "chair_coverage": 100.0})
    assert re.search(r"instances@[0-9a-f]{8}\|synonyms:synonyms.txt@", value["signatures"]["chair_i"])
    without = json.loads(cli(*words).out)["systems"]["captions"]
    assert without["chair_i"]["value"] == 50.0 and without["chair_s"]["value"] == 100.0
    assert "add --set synonyms=FILE" in cli(*words[:-3], "--set", f"instances={tmp_path}/instances_val2017.json").line


def test_chair_without_a_list_of_objects_is_refused() -> None:
    one = {"captions": {"1": "a dog on a meadow", "2": "a cat"}}
    references = {"1": ["a dog on grass"], "2": ["a cat"]}
    for name in ("chair", "chair_s", "coverage"):
        with pytest.raises(UsageError, match=r"add --set synonyms=FILE.*facts_precision_object"):
            evaluate(one, references=references, metrics=[name])
    found = evaluate(one, references=references, metrics=["facts_precision_object"]).systems["captions"]
    assert found["facts_precision_object"].value == pytest.approx(200 / 3)


def test_instances_are_those_of_the_pictures_files(cli: Cli, synonyms_file: Path, tmp_path: Path) -> None:
    """Pictures below a folder, as COCO's lie; one without annotations has no objects; others are named, or refused."""
    folder = tmp_path / "photos" / "val2014"
    folder.mkdir(parents=True)
    for number in (42, 73, 99):
        Image.new("RGB", (3, 2)).save(folder / f"COCO_val2014_{number:012}.jpg")
        (folder / f"COCO_val2014_{number:012}.txt").write_text("a puppy")
    (tmp_path / "captions.jsonl").write_text("".join(
        json.dumps({"id": number, "caption": "a dog near a bicycle"}) + "\n" for number in (42, 73, 99)
    ))  # fmt: skip
    instances = {
        "images": [{"id": number, "file_name": f"COCO_val2014_{number:012}.jpg"} for number in (42, 73)],
        "categories": [{"id": 2, "name": "bicycle"}], "annotations": [{"image_id": 42, "category_id": 2}],
    }  # fmt: skip
    (tmp_path / "instances.json").write_text(json.dumps(instances))
    words = ["eval", "--captions", tmp_path / "captions.jsonl", "--data", tmp_path / "photos", "--metrics", "chair_s"]
    words += ["--set", f"synonyms={synonyms_file}", "--set", f"instances={tmp_path}/instances.json"]
    found = cli(*words, "--json")
    value = json.loads(found.out)["systems"]["captions"]["chair_s"]["value"]
    assert value == pytest.approx(200 / 3)
    assert "1 of 3 pictures are not in the instances" in cli(*words).out
    instances["images"] = [{"id": 1, "file_name": "COCO_train2014_000000000001.jpg"}]
    (tmp_path / "instances.json").write_text(json.dumps({**instances, "annotations": []}))
    assert "); pass the instances file for these pictures, or" in cli(*words).line


def test_claims_that_are_all_wrong_have_an_f_of_zero_and_no_rate_leaves_0_to_100() -> None:
    wrong = Verdict(2, 0, 3, 0)
    for verdicts, f in (([wrong, wrong], 0.0), ([wrong, Verdict(2, 2, 3, 3)], 50.0)):
        statistic = rate_statistic(np.array([verdict.counts() for verdict in verdicts]), 2)
        assert statistic(np.ones(2)) == pytest.approx(f) and statistic.bounds == (0.0, 100.0)
    nothing_known = rate_statistic(np.array([Verdict(2, 1).counts()]), 2)
    assert np.isnan(nothing_known(np.ones(1)))


def test_wrong_files_of_objects_are_one_line(tmp_path: Path, synonyms_file: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UsageError, match=r"one object (a|per) line"):
        read_synonyms(tmp_path / "empty.txt")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(UsageError, match=r"is not a COCO instances file \("):
        read_instances(tmp_path / "list.json", read_synonyms(synonyms_file))


def test_a_scorer_supports_what_is_likelier_here() -> None:
    """Three pictures of one thing each, and a text tower that is a bag of the same words."""
    names = ["dog", "cat", "bus"]

    def encode(texts: list[str]) -> np.ndarray:
        return np.array([[float(name in text) for name in names] for text in texts])

    found = verify_scorer(["a dog and a cat", "a cat", "nothing"], np.eye(3), encode)  # type: ignore[arg-type]
    assert found[0].precision == pytest.approx((1 + 0.25) / 2) and found[1].precision == 1
    assert [reason for *_, reason in found[0].false] == ["fits other pictures better"]
    assert found[0].expected == 0 and np.isnan(found[0].recall)


@pytest.mark.data
def test_facts_on_real_photos_prefer_the_pictures_own_captions() -> None:
    """COCO's captions against the other four of their picture, and against those of the next picture."""
    value = json.loads((DATA / "coco280" / "captions.json").read_text())
    texts: dict[str, list[str]] = {}
    for annotation in value["annotations"]:
        texts.setdefault(str(annotation["image_id"]), []).append(annotation["caption"])
    ids = list(texts)[:60]
    own = {id_: texts[id_][0] for id_ in ids}
    wrong = {id_: texts[ids[number - 1]][0] for number, id_ in enumerate(ids)}
    references = {id_: texts[id_][1:] for id_ in ids}
    names = ["facts", "capture_like", "facts_precision_object", "facts_recall_object"]
    found = evaluate({"own": own, "wrong": wrong}, references=references, metrics=names).systems
    for name in names:
        assert found["own"][name].low > found["wrong"][name].high, name


def test_soft_matching_counts_what_is_left_by_its_nearest_meaning() -> None:
    """By hand: "dog" is in both; "sofa" has cosine 0.8 with "couch" and "cat" 0.6 with "couch", none below 0."""
    known, caption = ["a dog on a couch"], "a dog and a cat on a sofa"
    left = unmatched_claims(caption, known, NO_SYNONYMS, "object")
    assert (left.matched, left.made, left.known) == (1, ("cat", "sofa"), ("couch",))
    features = np.array([[0.6, 0.8], [0.8, 0.6], [1.0, 0.0]])
    found = left.verdict(features, {"cat": 0, "sofa": 1, "couch": 2})
    assert (found.precision, found.recall) == pytest.approx(((1 + 0.6 + 0.8) / 3, (1 + 0.8) / 2))
    opposite = left.verdict(-features * [[1], [1], [-1]], {"cat": 0, "sofa": 1, "couch": 2})
    assert (opposite.precision, opposite.recall) == pytest.approx((1 / 3, 1 / 2))
    alone = unmatched_claims("it is bright", known, NO_SYNONYMS, "object").verdict(features, {"couch": 2, "dog": 0})
    assert (alone.claims, alone.recalled, alone.expected) == (0, 0, 2)


@pytest.mark.pretrained
def test_soft_matching_takes_a_hound_for_a_dog(cli: Cli, tmp_path: Path) -> None:
    rows = {
        "references": {"a": ["a dog on a couch"], "b": ["a man with a red hat"]},
        "near": {"a": "a hound on a sofa", "b": "a guy with a red cap"},
        "far": {"a": "a bridge on a river", "b": "a zebra with a black door"},
    }
    for name, captions in rows.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(captions))
    files = [tmp_path / f"{name}.json" for name in ("near", "far", "references")]
    typed = ("eval", "--captions", files[0], "--captions", files[1], "--references", files[2], "--json")
    done = cli(*typed, "--metrics", "capture_like,capture_soft", "--set", "query_encoder=minilm-l6")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    near, far = (found["systems"][name] for name in ("near", "far"))
    assert near["capture_soft"]["value"] > far["capture_soft"]["value"] + 20
    assert near["capture_like"]["value"] < 25 and near["capture_soft"]["value"] > 50
    assert "cosine" in found["signatures"]["capture_soft"] and "minilm" in found["signatures"]["capture_soft"].lower()
    plain = cli(*typed, "--metrics", "capture_soft")
    assert plain.status == 2 and "query_encoder" in plain.err
    unused = cli(*typed, "--metrics", "capture_like", "--set", "query_encoder=minilm-l6")
    assert unused.status == 2 and "capture_soft" in unused.err


def test_kinds_of_attributes_are_told_by_their_words() -> None:
    references = ["two brown dogs on a wooden bench", "a large dog runs"]
    said = "three brown dogs on a metal bench"

    def counts(kind: str) -> tuple[float, ...]:
        return verify_references(said, references, kinds=(kind,)).counts()

    assert counts("colour") == (1, 1, 1, 1)
    assert counts("count") == (0, 1, 0, 1)  # three for two
    assert counts("material") == (0, 1, 0, 1)
    assert counts("attribute") == tuple(
        map(sum, zip(*map(counts, FINE_KINDS), (0, 0, 0, 2), strict=True))
    )  # large, runs
    assert counts("object") == (2, 2, 2, 2)


@pytest.mark.data
def test_what_kind_of_claim_is_forgotten_on_real_photos() -> None:
    """People name the objects that others name far more often than their colours, on COCO's photos."""
    value = json.loads((DATA / "coco280" / "captions.json").read_text())
    texts: dict[str, list[str]] = {}
    for annotation in value["annotations"]:
        texts.setdefault(str(annotation["image_id"]), []).append(annotation["caption"])
    own = {id_: found[0] for id_, found in texts.items()}
    references = {id_: found[1:] for id_, found in texts.items()}
    found = evaluate({"own": own}, references=references, metrics=["facts_kinds", "facts_recall"])
    row = found.systems["own"]
    assert row["facts_recall_object"].low > row["facts_recall_colour"].high > row["facts_recall_material"].low
    assert row["facts_recall_object"].value > row["facts_recall"].value > row["facts_recall_relation"].value
    assert {found.metrics[name].group for name in row if name != "facts_recall"} == {"By type of claim"}
    assert np.isnan(found.values["own"]["facts_recall_count"]).any()  # of photos where nobody counts


def test_sentences_have_places() -> None:
    caption = " A dog runs at 3.5 km/h.  It is wet! Good"
    found = whole_sentences(caption)
    assert [text for text, _ in found] == ["A dog runs at 3.5 km/h.", "It is wet!", "Good"]
    assert [caption[start:end] for _, ((start, end),) in found] == [text for text, _ in found]


def test_a_page_of_photos_marks_the_words_that_no_reference_has(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.effect_noise((480, 320), 60).convert("RGB").save(tmp_path / "photos" / "a.jpg")
    rows = {"captions": {"image": "a.jpg", "caption": "a red dog on grass"}, "references": {"image": "a.jpg"}}
    rows["references"] |= {"captions": ["a dog on grass"]}  # type: ignore[dict-item]
    for name, row in rows.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    done = cli(
        "eval", "--captions", tmp_path / "captions.jsonl", "--references", tmp_path / "references.jsonl", "--data",
        tmp_path / "photos", "--metrics", "facts", "--report", tmp_path / "page.html",
    )  # fmt: skip
    assert done.status == 0
    page = (tmp_path / "page.html").read_text()
    assert '<mark class="new" title="not in the references">red</mark> dog' in page
    assert "3 of 4 claims verified" in page and "could not be verified" in page
    assert "<mark>Marked words</mark> are false claims about the picture." not in page
