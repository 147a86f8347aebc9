"""Rewards called as verl's reward managers and ms-swift's trainer call them: by keyword, with their own types."""

from __future__ import annotations

import importlib.util
import inspect
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.integrations.swift import swift_reward
from tellapart.integrations.trl import Bank, cider, pmi, self_retrieval
from tellapart.integrations.trl.rows import RewardFunction
from tellapart.integrations.verl import VerlBatchScore, VerlScore
from tellapart.rewards.retrieval import self_retrieval as plain
from tellapart.scenes import Scenes
from tellapart.scorers.load import load_scorer

TEXTS = ["a red ball", "grass", "a dog left of a tree", "two cats"]
REFERENCES = {"0": ["a red ball on grass", "a ball"], "1": ["two cats on a mat", "cats"], "2": ["a dog", "a tree"]}


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    return [scene.image().resize((48, 32)) for scene in Scenes(2, split="train")]


@pytest.fixture
def paths(pictures: list[Image.Image], tmp_path: Path) -> list[str]:
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / f"{number}.png")
    return [str(tmp_path / f"{number}.png") for number in range(len(pictures))]


def as_bytes(picture: Image.Image) -> dict[str, Any]:
    """A picture as Parquet files of both trainers hold it."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def batch_manager(compute_score: Any, texts: list[str], infos: list[Any], **kwargs: Any) -> list[Any]:
    """What verl's ``BatchRewardManager.verify`` does with decoded responses."""
    found: list[Any] = compute_score(
        data_sources=np.array(["photos"] * len(texts), dtype=object),
        solution_strs=texts,
        ground_truths=[None] * len(texts),
        extra_infos=np.array(infos, dtype=object),
        **kwargs,
    )
    return found


def test_verls_batch_manager_gets_the_reward_of_the_training_loop(
    tiny_scorer: Path, pictures: list[Image.Image], paths: list[str]
) -> None:
    scorer = load_scorer(str(tiny_scorer))
    expected = plain(TEXTS, pictures, scorer).tolist()
    score = VerlBatchScore(self_retrieval(scorer))
    for shown in (paths, [as_bytes(picture) for picture in pictures], pictures):
        infos = [{"image": shown[row // 2], "index": row, "split": "train"} for row in range(4)]
        assert batch_manager(score, TEXTS, infos) == pytest.approx(expected, abs=1e-5)
    alone = [{"image": paths[row // 2], "bag": row // 2} for row in range(4)]
    assert batch_manager(VerlBatchScore(self_retrieval(scorer, "bag")), TEXTS, alone) == [0.0] * 4
    assert batch_manager(VerlBatchScore(self_retrieval(scorer, "bag"), abstained=-1), TEXTS, alone) == [-1] * 4
    with pytest.raises(TypeError, match="unexpected"):
        batch_manager(score, TEXTS, alone, weight=2.0)
    with pytest.raises(UsageError, match="the data set has no column 'image'"):
        batch_manager(score, TEXTS, [None] * 4)


def test_verls_managers_of_one_caption_get_rewards_that_need_no_batch(
    tiny_scorer: Path, pictures: list[Image.Image], paths: list[str], tmp_path: Path
) -> None:
    scorer = load_scorer(str(tiny_scorer))
    bank = Bank.encode(scorer, dict(zip("ab", pictures, strict=True)))
    expected = plain(TEXTS[:2], pictures, scorer).tolist()
    score = VerlScore(self_retrieval(scorer, "bank", bank=bank))
    for text, own, value in zip(TEXTS, "ab", expected, strict=False):
        call = {"data_source": "photos", "solution_str": text, "ground_truth": "", "extra_info": {"id": own}}
        assert score(**call) == pytest.approx(value, abs=1e-5)
    words = VerlScore(cider(REFERENCES))
    (near,), (far,) = (cider(REFERENCES)([text], id=["0"]) for text in ("a red ball on grass", "two cats on a mat"))
    assert words("photos", "a red ball on grass", None, {"id": "0"}) == near > far
    assert words("photos", "two cats on a mat", None, {"id": "0"}) == far
    reward: RewardFunction
    for reward in (self_retrieval(scorer), self_retrieval(scorer, "bag"), pmi("scenes")):
        with pytest.raises(UsageError, match="use VerlBatchScore with the reward manager BatchManager"):
            VerlScore(reward)
    similar = VerlScore(self_retrieval(scorer, score="cosine"))
    expected = plain(TEXTS[:1], pictures[:1], scorer, score="cosine").tolist()
    assert [similar("photos", TEXTS[0], None, {"image": paths[0]})] == pytest.approx(expected, abs=1e-5)


def test_verl_loads_it_from_a_file_by_its_name(tiny_scorer: Path, paths: list[str], tmp_path: Path) -> None:
    """``custom_reward_function.path`` and ``.name``: a file is imported and its attribute called."""
    (tmp_path / "my_reward.py").write_text(
        "from tellapart.integrations.trl import self_retrieval\n"
        "from tellapart.integrations.verl import VerlBatchScore\n"
        f"compute_score = VerlBatchScore(self_retrieval({str(tiny_scorer)!r}))\n"
    )
    spec = importlib.util.spec_from_file_location("custom_module", tmp_path / "my_reward.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not inspect.iscoroutinefunction(module.compute_score)
    found = batch_manager(module.compute_score, TEXTS, [{"image": paths[row // 2]} for row in range(4)])
    assert len(found) == 4 and all(isinstance(value, float) and value < 0 for value in found)


def test_swift_makes_an_object_of_the_class_and_calls_it_with_columns(
    tiny_scorer: Path, pictures: list[Image.Image], paths: list[str]
) -> None:
    """As its trainer does: by the parameters that ``__init__`` names, and one list for each column of the rows."""
    scorer = load_scorer(str(tiny_scorer))
    expected = plain(TEXTS, pictures, scorer).tolist()
    orms = {"self_retrieval": swift_reward(self_retrieval(scorer, image_column="images"))}
    made = orms["self_retrieval"]
    names = [name for name in inspect.signature(made.__init__).parameters if name not in ("self", "args", "kwargs")]
    assert names == [] and made.__name__ == "self_retrieval"
    for reward in (made(), made(args=SimpleNamespace(learning_rate=1e-6))):
        for shown in ([as_bytes(picture) for picture in pictures], [{"bytes": None, "path": path} for path in paths]):
            rows = [{"images": [shown[row // 2]], "messages": [], "solution": ""} for row in range(4)]
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            values = reward(TEXTS, **columns, trainer_state=SimpleNamespace(global_step=1))
            tensor = torch.tensor([value if value is not None else torch.nan for value in values])
            assert tensor.tolist() == pytest.approx(expected, abs=1e-5)
    bags = swift_reward(self_retrieval(scorer, "bag", image_column="images"))()
    assert bags(TEXTS[:1], images=[[pictures[0]]], bag=["alone"]) == [None]
    for wrong, line in (([pictures[0]] * 2, "expected one picture per row, got 2"), ([7], "got int")):
        with pytest.raises(UsageError, match=line):
            made()(TEXTS[:1], images=[wrong])


def odd_pictures(folder: Path) -> list[Path]:
    """Files whose pixels do not mean the same without their metadata: transparent, 16-bit, turned, in a palette."""
    drawn = Scenes(1, split="train")[0].image().resize((48, 32))
    clear, exif = drawn.convert("RGBA"), Image.Exif()
    clear.putalpha(Image.linear_gradient("L").resize(drawn.size))
    exif[0x0112] = 6
    palette = drawn.quantize(8)
    palette.info["transparency"] = palette.getpixel((0, 0))
    files = [folder / f"{name}.png" for name in ("clear", "deep", "turned", "palette")]
    clear.save(files[0])
    Image.fromarray(np.asarray(drawn.convert("L")).astype(np.uint16) * 200).save(files[1])
    drawn.save(files[2], exif=exif)
    palette.save(files[3], transparency=palette.info["transparency"])
    return files


def test_a_picture_in_memory_gets_the_reward_of_its_file(tiny_scorer: Path, tmp_path: Path) -> None:
    """TRL and verl hand over what `Image.open` gives; the training loop and the bank read files."""
    files, scorer = odd_pictures(tmp_path), load_scorer(str(tiny_scorer))
    expected = plain(TEXTS, [FilePicture(file).image() for file in files], scorer, score="cosine").tolist()
    reward = self_retrieval(scorer, score="cosine")
    opened = [Image.open(file) for file in files]
    data = [{"bytes": file.read_bytes(), "path": None} for file in files]
    for given in (opened, [[picture] for picture in opened], data, [str(file) for file in files]):
        assert reward(TEXTS, image=given) == pytest.approx(expected, abs=1e-5)
        assert VerlBatchScore(reward)([""] * 4, TEXTS, [None] * 4, [{"image": one} for one in given]) == pytest.approx(
            expected, abs=1e-5
        )
    assert plain(TEXTS, opened, scorer, score="cosine").tolist() == pytest.approx(expected, abs=1e-5)
    bank = Bank.encode(scorer, {str(number): picture for number, picture in enumerate(opened)})
    stored = self_retrieval(scorer, "bank", bank=bank, score="cosine")
    assert stored(TEXTS, id=[0, 1, 2, 3]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "ids", [[0, 1], np.array([0, 1]), [0.0, 1.0], ["0", "1"]], ids=["int", "numpy", "float", "text"]
)
def test_numbers_as_ids_find_their_references(ids: Any) -> None:
    expected = cider(REFERENCES)(TEXTS[:2], id=["0", "1"])
    assert cider(REFERENCES)(TEXTS[:2], id=ids) == expected
    assert cider({int(key): texts for key, texts in REFERENCES.items()})(TEXTS[:2], id=ids) == expected  # type: ignore[misc]
