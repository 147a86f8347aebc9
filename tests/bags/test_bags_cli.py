"""``tellapart bags``: from a folder of pictures to a benchmark, as a stranger would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli

from tellapart.bags.file import read_bags, write_bags
from tellapart.bags.mine_dataset import mine_dataset
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.evaluation.file_sets import read_sets
from tellapart.scenes import Scenes
from tellapart.scorers import load_scorer
from tellapart.training.fingerprint import content_of
from tellapart.utils.locks import locked


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty pictures, one of them twice, one damaged, one with a hostile name; captions beside them."""
    folder = tmp_path_factory.mktemp("photos")
    scenes = list(Scenes(30, split="test"))
    for number, scene in enumerate(scenes):
        name = "<b>&|`x.png" if number == 0 else f"{number:02d}.png"
        scene.image().save(folder / name)
        (folder / name).with_suffix(".txt").write_text("\n".join(scene.references))
    scenes[7].image().save(folder / "again.png")
    (folder / "again.txt").write_text("seen before")
    (folder / "broken.png").write_bytes(b"\x89PNG but no more")
    return folder


def test_one_command_from_pictures_to_a_benchmark(cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    out = tmp_path / "look<alikes>"
    done = cli(
        "bags", "build", photos, "--scorer", tiny_scorer, "--size", "2,3", "-o", out, "--licence", "CC0", "--json"
    )
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert told["pictures"] == 30 and [own["size"] for own in told["sizes"]] == [2, 3]
    assert told["sizes"][0]["chance"] == 50 and 0 <= told["sizes"][0]["human"] <= 100
    assert "1 of 32 pictures could not be read" in done.err and "broken.png" in done.err

    file = read_bags(out / "bags.jsonl", fingerprint=load_scorer(str(tiny_scorer)).fingerprint)
    assert file.header.left_out == {"unreadable": 1, "copies": 1} and file.header.sizes == (2, 3)
    for size, bags in file.of_size().items():
        ids = [id_ for bag in bags for id_ in bag.ids]
        assert len(set(ids)) == len(ids), "no picture is in two bags of a size"
        assert [bag.similarity for bag in bags] == sorted((bag.similarity for bag in bags), reverse=True)
        assert json.loads((out / f"{size}.json").read_text()) == [list(bag.ids) for bag in bags]
    assert [own.name for own in read_sets(out)] == ["bag2", "bag3"]
    pictures = [json.loads(line) for line in (out / "pictures.jsonl").read_text().splitlines()]
    assert {row["id"] for row in pictures} == {id_ for bag in file.bags for id_ in bag.ids}
    assert all(len(row["content"]) == 32 and row["captions"] for row in pictures)

    card, page = (out / "card.md").read_text(), (out / "card.html").read_text()
    for text in (card, page):
        assert "CC0" in text and "unreadable" in text and "bags build" in text and file.header.fingerprint in text
        assert "<b>&|" not in text and "<alikes>" not in text, "names are text, not markup"
    assert page.count('href="data:image/png;base64,') >= 10 and "<script" not in page and "http://" not in page
    assert "<h1>" in page and 'href="#bags2"' in page and "--paper" in page, "the house style, with a contents list"
    n = str(sum(own["size"] * own["bags"] for own in told["sizes"][:1]))
    assert f'data-label="n">{n}<' in page and 'data-label="chance">50.0<' in page
    rows = [line.split("|") for line in card.splitlines() if line.startswith(("| bag |", "| 2 |"))]
    assert [row[-3].strip() for row in rows] == ["n", n]
    assert rows[0][-4].strip() == "scorer’s R@1" and "of people" not in card + page, "it is the scorer's recall"


def test_what_is_too_unlike_for_a_bag_is_counted_and_named(
    cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    options = ("bags", "mine", photos, "--scorer", tiny_scorer, "--size", 3, "-o", tmp_path / "b.jsonl")
    assert cli(*options).status == 0
    alphas = [bag.similarity for bag in read_bags(tmp_path / "b.jsonl").bags]
    least = sorted(alphas)[len(alphas) // 2]
    done = cli(*options, "--overwrite", "--min-cosine", f"{least:.4f}", "--json")
    assert done.status == 0, done.err
    file, unlike = read_bags(tmp_path / "b.jsonl"), json.loads(done.out)["unlike"]
    assert file.header.min_cosine == float(f"{least:.4f}")
    assert 0 < len(file.bags) < len(alphas) and min(bag.similarity for bag in file.bags) >= least - 1e-4
    assert unlike and set(unlike).isdisjoint(id_ for bag in file.bags for id_ in bag.ids)
    assert f"{len(unlike)} of 30 pictures are in no bag, because too few other pictures have a cosine" in done.err
    assert ", ".join(unlike[:10]) in done.err
    assert "min cosine" in cli(*options).line
    assert "decrease it" in cli(*options, "--overwrite", "--min-cosine", 0.999999).line
    line = cli(*options, "--overwrite", "--min-cosine", 0.9, "--max-cosine", 0.8).line
    assert "--min-cosine 0.9: expected a cosine below --max-cosine 0.8, such as 0.6" in line


def test_sizes_of_an_earlier_build_are_taken_away(cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    """They would pass for part of this one; what is not ours stays."""
    out = tmp_path / "b"
    for sizes in ("2,3", "3,4"):
        assert cli("bags", "build", photos, "--scorer", tiny_scorer, "--size", sizes, "-o", out).status == 0
        (out / "7.json").write_text("mine")
    assert sorted(path.name for path in out.glob("*.json")) == ["3.json", "4.json", "7.json"]


def test_a_folder_that_another_process_builds_in_is_refused(
    cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    with locked(tmp_path / "b", wait=False):
        done = cli("bags", "build", photos, "--scorer", tiny_scorer, "--size", "2", "-o", tmp_path / "b")
        assert done.status == 2 and "b is in use by process" in done.err
    assert not (tmp_path / "b").exists()


def test_mining_again_finds_the_same(cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "text.jsonl")]
    for file in files[:2]:
        assert cli("bags", "mine", photos, "--scorer", tiny_scorer, "--size", "3", "-o", file).status == 0
    done = cli(
        "bags", "mine", photos, "--scorer", tiny_scorer, "--size", "3", "-o", files[2], "--captions", "references",
        "--all-pairs", "--max-cosine", "0.99999", "--json",
    )  # fmt: skip
    assert done.status == 0 and json.loads(done.out)["sizes"]["3"]["bags"] > 0
    assert files[0].read_bytes() == files[1].read_bytes()
    text = read_bags(files[2])
    assert (text.header.captions, text.header.similarity, text.header.max_cosine) == ("references", "pairs", 0.99999)
    assert text.bags != read_bags(files[0]).bags


def test_bags_of_other_settings_and_other_files_are_not_replaced(
    cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before pictures are encoded; the same settings mine again, and --overwrite replaces."""
    out, rows = tmp_path / "b.jsonl", tmp_path / "rows"
    rows.mkdir()
    np.save(rows / "000000.npy", np.random.default_rng(0).standard_normal((30, 8)).astype("f4"))
    (rows / "000000.txt").write_text("".join(f"{n}\n" for n in range(30)))
    mine = ("bags", "mine", photos, "--scorer", tiny_scorer, "-o", out, "--size")
    large = ("bags", "mine", "--features", rows, "-o", out, "--size", "3")
    out.write_text('{"id": "a", "caption": "a dog"}\n')
    for command in ((*mine, "3"), large):
        assert "already exists, and was not written by tellapart or has been" in cli(*command).line
    assert "a dog" in out.read_text()
    assert cli(*mine, "3", "--overwrite").status == 0
    before = out.read_bytes()
    assert cli(*mine, "3").status == 0 and out.read_bytes() == before
    assert f"{out} contains bags with different settings (sizes: 3, not 2)" in cli(*mine, "2").line
    assert (
        f"{out} contains bags with different settings (max cosine: none, not 0.9)"
        in cli(*mine, "3", "--max-cosine", "0.9").line
    )
    assert f"{out} contains bags with different settings (data: " in cli(*large).line
    monkeypatch.chdir(photos.parent)
    for spelled in (f"./{photos.name}/", f"folder:{photos.name}", f"{photos}/../{photos.name}"):
        done = cli("bags", "mine", spelled, "--scorer", f"{tiny_scorer}/../{tiny_scorer.name}", "-o", out, "--size", 3)
        assert done.status == 0, (spelled, done.err)
    assert cli(*mine, "3").status == 0
    assert out.read_bytes() == before
    assert cli(*large, "--overwrite").status == 0 and cli(*large).status == 0
    assert read_bags(out).header.data == f"features:{rows}"


def test_the_text_side_may_name_pictures_by_their_files(
    cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    items = open_data(f"folder:{photos}")
    files = {}
    for name, key in (("by_id", "{}"), ("by_path", "/elsewhere/photos/{}")):
        rows = [{"image": key.format(item.id), "text": item.references[0]} for item in items if item.references]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        files[name] = tmp_path / f"{name}.bags.jsonl"
        captions = ("--captions", tmp_path / f"{name}.jsonl")
        done = cli("bags", "mine", photos, "--scorer", tiny_scorer, "--size", "3", "-o", files[name], *captions)
        assert done.status == 0, done.err
    assert read_bags(files["by_id"]).bags == read_bags(files["by_path"]).bags


def test_a_card_of_bags_that_are_there(cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    bags = tmp_path / "bags.jsonl"
    assert cli("bags", "mine", photos, "--scorer", tiny_scorer, "--size", "3", "-o", bags).status == 0
    assert cli("bags", "card", bags, photos, "--scorer", tiny_scorer, "-o", tmp_path / "card").status == 0
    assert "Not stated" in (tmp_path / "card" / "card.md").read_text()
    assert "<code>tellapart " in (tmp_path / "card" / "card.html").read_text(), "the command that made it"
    done = cli("bags", "card", bags, photos, "--scorer", "scenes", "-o", tmp_path)
    assert (
        done.status == 2 and "specify the same scorer, or mine the bags again" in done.err and done.err.count("\n") == 1
    )
    (photos / "sub").mkdir()
    done = cli("bags", "card", bags, "scenes:plain?n=5", "--scorer", tiny_scorer, "-o", tmp_path)
    assert done.status == 2 and "of its pictures are not in the data" in done.err


def test_eval_takes_the_bags(cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    bags, captions = tmp_path / "bags.jsonl", tmp_path / "own.jsonl"
    data = "scenes:plain?n=24&split=test"
    assert cli("bags", "mine", data, "--scorer", tiny_scorer, "--size", "3", "-o", bags).status == 0
    items = list(open_data(data))
    captions.write_text("".join(json.dumps({"id": i.id, "caption": i.references[0]}) + "\n" for i in items))
    done = cli(
        "eval", "--captions", captions, "--data", data, "--scorer", tiny_scorer, "--bags", bags, "--json",
        "--set", "chance=true", "--metrics", "recall@1.bag3,mean_rank.bag3", "--resamples", "20",
    )  # fmt: skip
    assert done.status == 0, done.err
    systems = json.loads(done.out)["systems"]
    assert systems["own"]["recall@1.bag3"]["n"] == 3 * len(read_bags(bags).bags)
    assert systems["chance"]["mean_rank.bag3"]["value"] == 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--size", "40"], "bags of 40 need at least 40 distinct pictures, got 30 (and 1 copies)"),
        (["--size", "1,3"], "bag sizes: expected sizes of at least 2, such as 3,5,7, got 1, 3"),
        (["--size", "three"], "--size three: expected integers separated by commas, such as"),
        (["--size", ","], "got no size"),
        (["--captions", "nowhere.json"], "nowhere.json: no such file"),
        (["--max-cosine", "-0.99"], "all bags exceed a cosine of -0.99"),
    ],
)
def test_what_is_typed_wrong_is_one_line(
    cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path, more: list[str], told: str
) -> None:
    done = cli("bags", "mine", photos, "--scorer", tiny_scorer, "-o", tmp_path / "b.jsonl", *more)
    assert done.status == 2 and done.out == "" and told in done.err and not (tmp_path / "b.jsonl").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"max_cosine": 8.0}, "max_cosine: expected a cosine such as 0.8, got 8"),
        ({"max_cosine": float("nan")}, "max_cosine: expected a cosine such as 0.8, got nan"),
        ({"captions": "nowhere.json"}, "nowhere.json: no such file"),
    ],
)
def test_what_is_wrong_is_told_before_pictures_are_encoded(
    photos: Path, tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: dict[str, Any], told: str
) -> None:
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=told):
        mine_dataset(open_data(str(photos)), load_scorer(str(tiny_scorer)), [3], **more)
    assert not list(tmp_path.iterdir()), "nothing was encoded"


def test_pictures_that_are_all_equal(tmp_path: Path, tiny_scorer: Path) -> None:
    image = Scenes(1)[0].image()
    for number in range(5):
        image.save(tmp_path / f"{number}.png")
    with pytest.raises(UsageError, match=r"bags of 3 need at least 3 distinct pictures, got 1 \(and 4 copies\)"):
        mine_dataset(open_data(str(tmp_path)), load_scorer(str(tiny_scorer)), [3])


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    from tellapart.bags.file import BagsFile, Header
    from tellapart.errors import TellapartError

    (tmp_path / "file").write_text("")
    with pytest.raises(TellapartError, match="cannot be written"):
        write_bags(tmp_path / "file" / "bags.jsonl", BagsFile(Header(), []))


@pytest.mark.long
def test_training_with_bags_stops_and_goes_on(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """A run with a curriculum: the batches of a resumed run are those that it would have had."""
    from tellapart.recipe.reading import check_recipe
    from tellapart.training.build import TrainingSetup

    tiny_recipe["training"] |= {"batches": "bags", "batch_size": 20}
    for table, largest in (
        ({"schedule": [[0, 2], [1, 4]]}, 4),
        ({"kind": "hard", "hard": 4}, 5),
        ({"kind": "random", "size": 5}, 5),
        ({"size": 3, "captions": "references"}, 3),
    ):
        recipe = check_recipe({**tiny_recipe, "bags": table}, "test")
        first, again = (TrainingSetup(recipe, lambda name: name).training_set() for _ in range(2))
        for step in (0, 4, 5):
            assert first.batch(step).rows_B.tolist() == again.batch(step).rows_B.tolist()
        bag_B, distractors_BK = again.batch(7).bag_B, again.batch(7).distractors_BK
        if bag_B is None:  # hard distractors share the picture's softmax, not its batch
            assert distractors_BK is not None and distractors_BK.shape == (20, largest - 1)
        else:
            assert max((bag_B == bag).sum() for bag in bag_B) == largest
    seen, read = (
        TrainingSetup(
            check_recipe({**tiny_recipe, "bags": {"size": 3, **more}}, "test"), lambda name: name
        ).training_set()
        for more in ({}, {"captions": "references"})
    )
    assert seen.batch(0).rows_B.tolist() != read.batch(0).rows_B.tolist(), "what people wrote counts"
    with pytest.raises(UsageError, match="bags of 61 pictures require at least as many training pictures; got"):
        tiny_recipe["training"]["batch_size"] = 100
        TrainingSetup(check_recipe({**tiny_recipe, "bags": {"size": 61}}, "test"), lambda name: name).training_set()


@pytest.mark.parametrize(
    ("batches", "bags", "told"),
    [
        ("shuffled", {"size": 5}, "[bags] requires training.batches = 'bags', but got"),
        ("bags", {"size": 30}, "bags of 30 pictures do not fit into training.batch_size = 20;"),
        ("bags", {"kind": "hard", "hard": 20}, "bags of 21 pictures do not fit into training.batch_size = 20;"),
        ("bags", {"kind": "hard"}, "kind = 'hard' and hard require each other; set both, for example"),
        ("bags", {"hard": 3}, "kind = 'hard' and hard require each other; set both, for example"),
        ("bags", {"size": 3, "schedule": [[0, 3]]}, "size, schedule and hard all set the size of bags; keep only one"),
        ("bags", {"schedule": [[1, 3]]}, "schedule must be a list of [first epoch, bag"),
        ("bags", {"schedule": [[0, 3], [0, 4]]}, "schedule must be a list of [first epoch, bag"),
        ("bags", {"schedule": [[0, 1]]}, "bags.schedule"),
        ("bags", {"kind": "random", "size": 3, "scorer": "scenes"}, "scorer has no effect on random bags, which"),
        ("bags", {"siz": 3}, "unknown key 'bags.siz'; did you mean 'size'?"),
    ],
)
def test_recipes_that_contradict_themselves(
    tiny_recipe: dict[str, Any], batches: str, bags: dict[str, Any], told: str
) -> None:
    from tellapart.recipe.reading import check_recipe

    tiny_recipe["training"]["batches"] = batches
    with pytest.raises(UsageError) as refused:
        check_recipe({**tiny_recipe, "bags": bags}, "test")
    assert told in str(refused.value)


def test_bags_in_a_recipe_come_back_and_are_in_the_fingerprint(tiny_recipe: dict[str, Any]) -> None:
    import tomllib

    from tellapart.recipe.reading import check_recipe, to_toml

    plain = check_recipe(tiny_recipe, "test")
    tiny_recipe["training"]["batches"] = "bags"
    grown = check_recipe({**tiny_recipe, "bags": {"schedule": [[0, 2], [3, 5]], "max_cosine": 0.8}}, "test")
    assert content_of(grown).fingerprint != content_of(plain).fingerprint
    assert check_recipe(tomllib.loads(to_toml(grown)), "test") == grown
    with pytest.raises(UsageError, match=r"bags.scorer is missing; name the scorer whose"):
        alone = {"scorer": None, "objective": {"kind": "mle"}, "validation": {"select": "loss"}}
        check_recipe({**tiny_recipe, **alone, "bags": {"size": 3}}, "test")


@pytest.mark.parametrize(("key", "value"), [("sizes", 3.5), ("fingerprint", 12), ("left_out", "none")])
def test_a_damaged_header_is_one_line(key: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "bags.jsonl"
    whole = {"kind": "tellapart bags", "format": 1, "scorer": "s", "fingerprint": "f", "sizes": [3]}
    bag = json.dumps({"ids": ["a", "b", "c"], "similarity": 0.5})
    path.write_text(f"{json.dumps({**whole, key: value})}\n{bag}\n")
    with pytest.raises(UsageError, match=f"the header's '{key}.*is damaged"):
        read_bags(path)
