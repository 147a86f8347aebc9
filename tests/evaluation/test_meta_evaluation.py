"""Human judgements in their published layouts, and metrics measured against them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli
from real_data import DATA

from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.agreement import measure_agreement
from tellapart.evaluation.human_judgements.agreement_in_file import agreement_with_people
from tellapart.evaluation.human_judgements.agreement_table import ALL
from tellapart.evaluation.human_judgements.layouts import read_judgements

TEXTS = {
    "1056338697_4f7d7ce270.jpg": ["A blond woman in a blue shirt waits for a ride .", "A woman stands by a road ."],
    "106490881_5a2dd9b7bd.jpg": ["A boy in blue shorts is on the beach .", "A child stands in wet sand by the sea ."],
    "2549968784_39bfbe44f9.jpg": ["Three dogs run over green grass .", "A pack of dogs races across a lawn ."],
}
BLOND, BOY, DOGS = TEXTS


def tokens_file(folder: Path) -> Path:
    lines = [f"{name}#{k}\t{text}\n" for name, own in TEXTS.items() for k, text in enumerate(own)]
    (folder / "Flickr8k.token.txt").write_text("".join(lines))
    return folder / "Flickr8k.token.txt"


def coco_file(folder: Path) -> Path:
    """COCO annotations of two pictures, three captions each."""
    texts = {
        74: ["A dog lies on a street.", "A white dog sleeps beside a bike.", "A dog next to a bicycle on the road."],
        133: ["A bedroom with a bunk bed.", "A bed with a ladder under a window.", "A small room with two beds."],
    }
    value = {
        "images": [{"id": id_, "file_name": f"COCO_val2014_{id_:012d}.jpg"} for id_ in texts],
        "annotations": [
            {"id": 10 * id_ + k, "image_id": id_, "caption": text}
            for id_, own in texts.items()
            for k, text in enumerate(own)
        ],
    }
    (folder / "captions_val2014.json").write_text(json.dumps(value))
    return folder / "captions_val2014.json"


@pytest.mark.data
def test_flickr8k_expert_is_the_published_table() -> None:
    """Tau-c as papers print it: each of three ratings a judgement of its own, 5,664 captions that are no reference."""
    found = agreement_with_people(
        DATA / "judgements" / "flickr8k_expert.txt",
        [DATA / "flickr8k" / "Flickr8k.token.txt"],
        metrics=["bleu4", "meteor", "cider", "rouge_l"],
    )
    assert len(found.judgements.captions) == 5664 and found.to_json()["judgements"]["ratings"] == 3 * 5664
    published = {"bleu4": 30.8, "meteor": 41.8, "cider": 43.9, "rouge_l": 32.3}
    seen = {name: agreement.tau_c for name, agreement in found.metrics.items()}
    assert seen == pytest.approx(published, abs=0.1)


def test_expert_ratings_leave_out_captions_that_are_references(tmp_path: Path) -> None:
    tokens_file(tmp_path)
    rows = [(BLOND, f"{BLOND}#0", "4\t4\t4"), (BLOND, f"{DOGS}#1", "1\t1\t2"), (BOY, f"{BLOND}#1", "1\t2\t1")]
    file = tmp_path / "ExpertAnnotations.txt"
    file.write_text("".join("\t".join(row) + "\n" for row in rows))
    found = read_judgements(file)  # Flickr8k.token.txt lies beside it
    assert found.layout == "flickr8k-expert" and found.tau == "c"
    assert [row.caption for row in found.captions] == [TEXTS[DOGS][1], TEXTS[BLOND][1]]
    assert found.captions[0].ratings == (1.0, 1.0, 2.0) and found.captions[0].references == tuple(TEXTS[BLOND])


def test_crowdflower_rates_by_the_share_of_yes(tmp_path: Path) -> None:
    tokens_file(tmp_path)
    file = tmp_path / "CrowdFlowerAnnotations.txt"
    file.write_text(f"{BLOND}\t{BOY}#0\t0.333333333333\t1\t2\n{BLOND}\t{DOGS}#0\t0\t0\t3\n{BOY}\t{DOGS}#1\t1\t4\t0\n")
    found = read_judgements(file)
    assert (found.layout, found.tau) == ("flickr8k-cf", "b")
    assert [round(row.ratings[0], 3) for row in found.captions] == [0.333, 0.0, 1.0]


def test_the_clipscore_authors_json_joins_the_ratings_of_a_caption(tmp_path: Path) -> None:
    judged = [
        {"image_path": f"Images/{BLOND}", "caption": "A woman  by a road", "rating": rating} for rating in (3, 4.0)
    ]
    judged.append({"image_path": f"Images/{BLOND}", "caption": TEXTS[DOGS][0], "rating": float("nan")})
    value = {BLOND: {"image_path": f"Images/{BLOND}", "ground_truth": TEXTS[BLOND], "human_judgement": judged}}
    file = tmp_path / "flickr8k.json"
    file.write_text(json.dumps(value))
    found = read_judgements(file)
    assert [(row.caption, row.ratings) for row in found.captions] == [("A woman by a road", (3.0, 4.0))]
    assert (found.layout, found.tau) == ("clipscore", "c")


def test_composite_takes_a_rated_reference_out_of_the_references(tmp_path: Path) -> None:
    coco_file(tmp_path)
    heads = "HITId;Input.image_url;Input.text1;Input.text2;Answer.Q1Answer;Answer.Q2Answer\n"
    url = "http://example.org/val2014/COCO_val2014_000000000074.jpg"
    file = tmp_path / "coco_correctness.csv"
    file.write_bytes((heads + f"a1;{url};A dog lies on a street.;A café with a cat;5;1\n").encode("latin-1"))
    found = read_judgements(file)
    assert found.layout == "composite"
    assert [(row.caption, row.ratings, len(row.references)) for row in found.captions] == [
        ("A dog lies on a street.", (5.0,), 2),
        ("A café with a cat", (1.0,), 3),
    ]


@pytest.mark.parametrize("content", [{"1.jpg": "a dog"}, [1]])
def test_other_json_is_told_what_a_judged_file_has(tmp_path: Path, content: object) -> None:
    (tmp_path / "captions.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match="expected a JSON object whose values are objects, one per picture"):
        read_judgements(tmp_path / "captions.json", "clipscore")


def test_thumb_reads_its_references_beside_it(tmp_path: Path) -> None:
    lines = [
        {"seg_id": 74, "image": "COCO_val2014_000000000074.jpg", "hyp": hyp, "SYS": system, "human_score": score}
        | {"P": 5.0, "R": 4.0}
        for hyp, system, score in (("A dog on a road.", "VinVL-base", 4.5), ("A cat.", "Up-Down", "1.75"))
    ]
    (tmp_path / "mscoco_references.json").write_text(
        json.dumps({"seg_id": 74, "refs": ["A dog lies on a street.", "A white dog."]}) + "\n"
    )
    file = tmp_path / "mscoco_THumB-1.0.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_judgements(file)
    assert found.layout == "thumb" and [row.caption for row in found.captions] == ["A dog on a road.", "A cat."]
    assert found.captions[1].ratings == (1.75,) and len(found.captions[0].references) == 2
    table = measure_agreement(found, ["rouge_l"])
    assert table.metrics["rouge_l"].accuracy == {ALL: 100.0}
    # Captions of one picture count separately if they have no references.
    (tmp_path / "mscoco_references.json").write_text(json.dumps({"seg_id": 75, "refs": ["A dog."]}) + "\n")
    with pytest.raises(UsageError, match=r"2 of 2 judged captions have no reference .* \('COCO_val2014_000000000074"):
        read_judgements(file)
    # References belong to a line's segment, not to its picture.
    (tmp_path / "mscoco_references.json").write_text(
        "".join(json.dumps({"seg_id": number, "refs": [f"reference {number}"]}) + "\n" for number in (74, 75))
    )
    file.write_text("".join(json.dumps(lines[0] | {"seg_id": number}) + "\n" for number in (74, 75)))
    assert [row.references for row in read_judgements(file).captions] == [("reference 74",), ("reference 75",)]


def test_foil_is_a_choice_between_a_right_word_and_a_wrong_one(tmp_path: Path) -> None:
    coco_file(tmp_path)
    right = {"image_id": 74, "id": 740, "foil_id": 1, "caption": "A dog lies on a street."}
    wrong = right | {"foil": True, "caption": "A cat lies on a street.", "target_word": "dog", "foil_word": "cat"}
    value = {"info": {}, "images": [], "annotations": [wrong, right | {"foil": False, "foil_word": "ORIG"}]}
    file = tmp_path / "foilv1.0_test_2017.json"
    file.write_text(json.dumps(value))
    found = read_judgements(file)
    assert (found.layout, len(found.pairs)) == ("foil", 1)
    # The right caption is itself a reference: both are measured against the other two.
    assert found.captions[0].references == found.captions[1].references and len(found.captions[0].references) == 2
    wrong["caption"] = 1.5  # type: ignore[assignment]
    (tmp_path / "damaged.json").write_text(json.dumps(value))
    with pytest.raises(UsageError, match=r"layout foil .*a caption is 1\.5"):
        read_judgements(tmp_path / "damaged.json")
    table = measure_agreement(found, ["bleu1"])
    assert table.metrics["bleu1"].tau_c is None and table.metrics["bleu1"].accuracy == {ALL: 100.0}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("encode", [json.dumps, dict])
def test_detailcaps_has_scores_of_gpt4(tmp_path: Path, suffix: str, encode: Callable[[object], object]) -> None:
    records = [
        {
            "dataset": "coco",
            "image": f"{number}.jpg",
            "binary": "…",
            "GT_Caption_GPT4O": "The image shows two dogs. One of them is brown.",
            "GT_Caption_GPT4V": "Two dogs play on a lawn.",
            "GT_Caption_Gemini15Pro": None,
            "CogVLM": "Two dogs on a lawn.",
            "LLaVA_v15": "A car.",
            "GPT4_Eval": encode({"CogVLM": 4, "LLaVA_v15": 1}) if number else None,
        }
        for number in range(3)
    ]
    file = tmp_path / f"detailcaps{suffix}"
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(records), file)
    else:
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = read_judgements(file)
    assert found.layout == "detailcaps" and "GPT-4" in found.judges
    assert [(row.caption, row.ratings) for row in found.captions[:2]] == [
        ("Two dogs on a lawn.", (4.0,)),
        ("A car.", (1.0,)),
    ]
    assert len(found.captions) == 4 and len(found.captions[0].references) == 2
    assert found.notes and "1 pictures" in found.notes[0]


def test_pascal_50s_counts_votes(tmp_path: Path) -> None:
    io = pytest.importorskip("scipy.io")
    cell = lambda *texts: np.array([*texts, None], dtype=object)[:-1].reshape(1, -1)  # noqa: E731
    pairs = [("1.jpg", "a dog runs", "a cat sleeps", 2), ("2.jpg", "a red bus", "a bus", 1)]
    inputs = np.empty((1, len(pairs)), dtype=object)
    triplets = np.zeros((1, 48 * len(pairs)), dtype=[(name, object) for name in "ABCd"])
    for number, (picture, first, second, _) in enumerate(pairs):
        inputs[0, number] = cell(picture, first, second)
        for vote in range(48):
            preferred = 1 if vote < (40, 24)[number] else -1
            row = (cell(f"reference {vote} of {first}"), cell(first), cell(second), np.array([[preferred]]))
            triplets[0, 48 * number + vote] = row
    category = np.array([[pair[3] for pair in pairs]])
    io.savemat(tmp_path / "pair_pascal.mat", {"new_input": inputs, "category": category, "new_data": np.zeros((2, 4))})
    io.savemat(tmp_path / "consensus_pascal.mat", {"triplets": triplets})
    found = read_judgements(tmp_path / "pair_pascal.mat")
    assert [(pair.better, pair.worse, pair.category, pair.tied) for pair in found.pairs] == [
        (0, 1, "HI", False),
        (2, 3, "HC", True),
    ]
    assert all(len(row.references) == 5 for row in found.captions)
    accuracy = measure_agreement(found, ["bleu1"]).metrics["bleu1"].accuracy
    assert accuracy == {"HI": 100.0, "HC": 50.0, ALL: 75.0}


def test_the_command_prints_a_table_and_json(cli: Cli, tmp_path: Path) -> None:
    tokens = tokens_file(tmp_path)
    rows = [(BLOND, f"{DOGS}#1", "1\t1\t2"), (BLOND, f"{BOY}#0", "2\t2\t2"), (BOY, f"{BLOND}#1", "1\t2\t1")]
    rows += [(BOY, f"{DOGS}#0", "1\t1\t1"), (DOGS, f"{BOY}#1", "1\t3\t2"), (DOGS, f"{BLOND}#0", "1\t1\t1")]
    file = tmp_path / "expert.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in rows))
    shown = cli("study", "judges", file, "--references", tokens, "--metrics", "cider,bleu4")
    assert shown.status == 0 and "tau-c" in shown.out and "CIDEr" in shown.out and "BLEU-4" in shown.out
    done = cli("study", "judges", file, "--metrics", "bleu1,length", "--resamples", "50", "--json")
    value = json.loads(done.out)
    assert value["judgements"] == {
        "layout": "flickr8k-expert", "judges": "experts, 1-4", "captions": 6, "pictures": 3, "ratings": 18,
        "pairs": 3, "tau": "c",
    }  # fmt: skip
    bleu = value["metrics"]["bleu1"]
    assert bleu["low"] <= bleu["tau_c"] <= bleu["high"] and bleu["n"] == 6
    assert value["signatures"]["bleu1"].endswith("|judgements:flickr8k-expert|captions-that-are-references:left-out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\n", r": unknown layout; set it with --layout \("),
        (f"{BLOND}\t{DOGS}#0\tone\t1\t2\n", ", line 1: one/1/2 are not ratings"),
        (f"{BLOND}\t{DOGS}#0\tnan\t1\t2\n", ", line 1: nan/1/2 are not ratings"),
        ("nobody.jpg\tnobody.jpg#0\t1\t1\t2\n", "have no reference or no text"),
    ],
)
def test_wrong_files_are_one_line(tmp_path: Path, content: str, message: str) -> None:
    tokens_file(tmp_path)
    file = tmp_path / "judged.txt"
    file.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_judgements(file)
    with pytest.raises(UsageError, match="did you mean 'thumb'"):
        read_judgements(file, "thum")


@pytest.mark.parametrize(
    ("layout", "content"),
    [
        ("flickr8k-cf", f"{BLOND}\t{DOGS}#²\t1\t1\t2\n"),
        ("clipscore", {"a": {"ground_truth": 5, "human_judgement": [{"caption": "x", "rating": 1}]}}),
        ("clipscore", {"a": {"ground_truth": ["a dog"], "human_judgement": [{"rating": 1}]}}),
        ("composite", "\0" * 10 + "\n;" * 200_000),
        ("thumb", {"seg_id": 74, "hyp": "a dog", "human_score": 3, "refs": ["x"]}),
        ("thumb", [1, 2]),
        ("foil", {"annotations": [{"caption": "a dog", "foil": True}]}),
        ("foil", [1]),
        ("detailcaps", {"GPT4_Eval": "{", "GT_Caption_1": "a dog", "image": "x.jpg"}),
        ("detailcaps", [1]),
    ],
)
def test_damaged_judgements_of_each_layout_are_one_line(tmp_path: Path, layout: str, content: object) -> None:
    file, references = tmp_path / "judged", coco_file(tmp_path)
    tokens_file(tmp_path)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UsageError, match="judged"):
        read_judgements(file, layout, [] if layout.startswith("flickr8k") else [references])


def test_damaged_binary_judgements_are_one_line(tmp_path: Path) -> None:
    for name in ("judged.parquet", "pair_pascal.mat", "consensus_pascal.mat"):
        (tmp_path / name).write_bytes(b"MATLAB 5.0 MAT-file" + b"\0" * 130 + b"PAR1")
    for name in ("judged.parquet", "pair_pascal.mat"):
        with pytest.raises(UsageError, match=name):
            read_judgements(tmp_path / name)
