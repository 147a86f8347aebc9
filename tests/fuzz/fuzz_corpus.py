"""Small valid input of every layout that a command reads, written once; cases copy from it and damage their copy."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tellapart.data.pictures import FilePicture
from tellapart.scenes import Scenes
from tellapart.scorers import load_scorer

COUNT = 8
NAMES = [f"{number}.png" for number in range(COUNT)]
_PLAIN = ["a red ball on the sand", "a blue box, two stars", "a green ring near a box", "a striped disc in snow"]
CAPTIONS = [*_PLAIN, *(f"{text} at night" for text in _PLAIN)]
LINES = dict(zip(NAMES, CAPTIONS, strict=True))


def build_corpus(folder: Path, scorer: Path, captioner: Path) -> dict[str, Path]:
    """Write all layouts below ``folder``; by name, where each lies: a file or a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _pictures(folder / "photos")
    for write in (_captions, _references, _tables, _published, _clips, _features, _recipes):
        write(folder)
    _bags(folder, load_scorer(str(scorer)).fingerprint)
    _boosted(folder)
    _run(folder / "run")
    _mined(folder)
    _study(folder)
    _judged(folder)
    assets = {path.name: path for path in folder.iterdir()}
    return {**assets, "scorer": scorer, "captioner": captioner}


def _pictures(folder: Path, names: list[str] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, scene in zip(names or NAMES, Scenes(COUNT), strict=False):
        scene.image().save(folder / name)


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def _lines(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _captions(folder: Path) -> None:
    _lines(folder / "c.jsonl", [{"id": name, "caption": text} for name, text in LINES.items()])
    _lines(folder / "samples.jsonl", [{"id": name, "captions": [text, text[2:]]} for name, text in LINES.items()])
    (folder / "c.csv").write_text("id,caption\n" + "".join(f'{name},"{text}"\n' for name, text in LINES.items()))
    (folder / "c.txt").write_text("".join(f"{text}\n" for text in CAPTIONS))
    _json(folder / "c.json", [{"image_id": name, "caption": text} for name, text in LINES.items()])
    _json(folder / "map.json", LINES)
    _lines(folder / "numbered.jsonl", [{"id": str(n), "caption": text} for n, text in enumerate(CAPTIONS)])


def _references(folder: Path) -> None:
    rows = [{"image": f"photos/{name}", "captions": [text, f"there is {text}"]} for name, text in LINES.items()]
    _lines(folder / "data.jsonl", [{**row, "id": Path(row["image"]).name} for row in rows])
    _json(folder / "refs.json", {name: [text, f"there is {text}"] for name, text in LINES.items()})
    (folder / "refs.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in LINES.items()))
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    told = [{"id": number, "image_id": number, "caption": text} for number, text in enumerate(CAPTIONS)]
    _json(folder / "coco.json", {"images": images, "annotations": told})
    images_k = [
        {"filename": name, "split": "test", "cocoid": number, "sentences": [{"raw": text, "tokens": text.split()}]}
        for number, (name, text) in enumerate(LINES.items())
    ]
    _json(folder / "karpathy.json", {"images": images_k, "dataset": "coco"})
    _lines(folder / "chat.jsonl", [{"instruction": "say", "input": text, "output": text} for text in CAPTIONS])


def _tables(folder: Path) -> None:
    rows = [("image", "caption", "split"), *((f"photos/{name}", text, "test") for name, text in LINES.items())]
    (folder / "data.csv").write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows))
    (folder / "data.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    pictures = [(folder / "photos" / name).read_bytes() for name in NAMES]
    with tarfile.open(folder / "shard-000.tar", "w") as archive:
        for number, (data, text) in enumerate(zip(pictures, CAPTIONS, strict=True)):
            for suffix, content in (("png", data), ("json", json.dumps({"caption": text}).encode())):
                info = tarfile.TarInfo(f"{number:05d}.{suffix}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return
    cells = [{"bytes": data, "path": name} for data, name in zip(pictures, NAMES, strict=True)]
    _saved(folder, pictures)
    pq.write_table(pa.table({"image": cells, "caption": CAPTIONS}), folder / "data.parquet", row_group_size=2)


def _saved(folder: Path, pictures: list[bytes]) -> None:
    """A data set of Hugging Face's library, where that is installed."""
    try:
        import datasets
    except ImportError:
        return
    datasets.disable_progress_bars()
    rows = {"image": [{"bytes": data, "path": None} for data in pictures], "caption": CAPTIONS}
    features = datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(folder / "saved")


def _published(folder: Path) -> None:
    """The layouts that data sets were published in."""
    flickr = folder / "flickr"
    _pictures(flickr / "images", [f"{number}.jpg" for number in range(COUNT)])
    tokens = [f"{number}.jpg#{k}\t{text}" for number, text in enumerate(CAPTIONS) for k in (0, 1)]
    (flickr / "Flickr8k.token.txt").write_text("\n".join(tokens) + "\n")
    (flickr / "Flickr_8k.testImages.txt").write_text("0.jpg\n1.jpg\n")
    (folder / "cc.tsv").write_text("".join(f"{text}\thttp://a.org/{name}\n" for name, text in LINES.items()))
    images = [{"id": n, "file_name": name, "domain": "in-domain"} for n, name in enumerate(NAMES)]
    told = [{"image_id": n, "id": n, "caption": text} for n, text in enumerate(CAPTIONS)]
    _json(folder / "nocaps_val_captions.json", {"images": images, "annotations": told})
    concadia = [
        {"filename": name, "split": "test", "caption": {"raw": text}, "description": {"raw": text}}
        for name, text in LINES.items()
    ]
    _json(folder / "wiki_split.json", {"images": concadia})
    _json(folder / "imagecode" / "valid_data.json", {"set-1": {"0": CAPTIONS[0], "3": CAPTIONS[1]}})
    _pictures(folder / "imagecode" / "image-sets" / "set-1", [f"img{n}.jpg" for n in range(COUNT)])


def _clips(folder: Path) -> None:
    names = [f"video{number}" for number in range(2)]
    frames = [scene.image() for scene in Scenes(3)]
    for name in names:
        (folder / "clips").mkdir(exist_ok=True)
        frames[0].save(folder / "clips" / f"{name}.gif", save_all=True, append_images=frames[1:])
        (folder / "clips" / f"{name}.mp4").write_bytes((folder / "clips" / f"{name}.gif").read_bytes())
    videos = [{"video_id": name, "split": "test"} for name in names]
    told = [{"caption": text, "video_id": name} for name, text in zip(names, CAPTIONS, strict=False)]
    _json(folder / "clips" / "msrvtt.json", {"videos": videos, "sentences": told})
    rows = [f"https://a.org/x/{name}.gif\t{text}\n" for name, text in zip(names, CAPTIONS, strict=False)]
    (folder / "clips" / "tgif.tsv").write_text("".join(rows))
    rows = [f"{name} {text}\n" for name, text in zip(names, CAPTIONS, strict=False)]
    (folder / "clips" / "AllVideoDescriptions.txt").write_text("".join(rows))


def _features(folder: Path) -> None:
    chance = np.random.default_rng(0)
    (folder / "features").mkdir()
    for name in NAMES:
        np.savez(folder / "features" / f"{name}.npz", x=chance.normal(size=32).astype(np.float32))


def _bags(folder: Path, fingerprint: str) -> None:
    from tellapart.bags.file import Bag, BagsFile, Header, write_bags
    from tellapart.bags.review import DecisionStore, bag_key

    bags = [Bag(tuple(NAMES[:2]), 0.9), Bag(tuple(NAMES[2:]), 0.8)]
    header = Header(scorer="tiny", fingerprint=fingerprint, data="photos", sizes=(2,), pictures=COUNT)
    write_bags(folder / "bags.jsonl", BagsFile(header, bags))
    _json(folder / "2.json", [NAMES[:2], NAMES[2:]])
    with DecisionStore.open(folder / "bags.review.sqlite") as store:
        for bag in bags:
            store.decide("Ann", bag_key(bag.ids), "keep", ["count"], "fine")


RECIPE = """name = "tiny"
seed = 1

[data]
train = "scenes:plain?n=8&split=train"
validation = "scenes:plain?n=6&split=validation"

[captioner]
name = "{captioner}"

[scorer]
name = "{scorer}"

[objective]
kind = "reinforce"
kl = 0.1
decoding = {{ kind = "sample", max_tokens = 4 }}

[training]
steps = 2
batch_size = 4
learning_rate = 1e-3
checkpoint_every = 1

[validation]
every = 1
decoding = {{ max_tokens = 4 }}
"""
SMILE = """name = "smile"

[data]
train = "data.jsonl"
validation = "data.jsonl"

[captioner]
name = "{captioner}"

[objective]
kind = "smile"
mle_weight = 0.1

[training]
steps = 2
batch_size = 2
learning_rate = 1e-3

[validation]
select = "loss"
decoding = {{ max_tokens = 4 }}
"""
NEW = """name = "new"

[data]
train = "scenes:plain?n=8&split=train"
validation = "scenes:plain?n=6&split=validation"

[scorer.new]
image_size = 32
width = 4
text_width = 16
text_layers = 1
text_heads = 2
projection = 16

[objective]
kind = "contrastive"

[training]
steps = 2
batch_size = 4
learning_rate = 1e-3
"""


def _recipes(folder: Path) -> None:
    for name, text in (("tiny.toml", RECIPE), ("smile.toml", SMILE), ("new.toml", NEW)):
        (folder / name).write_text(text.format(captioner="captioner", scorer="scorer"))


def _boosted(folder: Path) -> None:
    """The parts of a boosted data set, each with what made it and its ledger."""
    from tellapart.boost.backends import open_backend
    from tellapart.boost.boost_dataset import boost_dataset
    from tellapart.boost.stages import stages
    from tellapart.data import open_data

    scripted = open_backend("scripted")
    chosen = stages(["blend", "describe", "holistic"], scripted, scripted)
    for place in (1, 2):
        data = open_data("scenes:plain?n=4&split=train")
        boost_dataset(data, chosen, folder / "boosted" / f"{place}.jsonl", shard=(place, 2), in_flight=1)


def _run(folder: Path) -> None:
    from sample_run import make_run

    make_run(folder, size=3, picks=((1, 0), (0, 0)))


def _mined(folder: Path) -> None:
    """Features by rows, and the work folder of a search that was stopped while it wrote its bags."""
    from tellapart.bags import mine_folder

    (folder / "rows").mkdir()
    rows_ND = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    for number in range(2):
        np.save(folder / "rows" / f"{number:06}.npy", rows_ND[number * 150 : number * 150 + 150])
        (folder / "rows" / f"{number:06}.txt").write_text("".join(f"{number}-{row}.png\n" for row in range(150)))
    killed = mock.patch.object(mine_folder, "_write", side_effect=KeyboardInterrupt)
    with killed, contextlib.suppress(KeyboardInterrupt):
        mine_folder.mine_folder(folder / "rows", folder / "b.jsonl", [3], pictures=100, progress=False)


def _study(folder: Path) -> None:
    """A study with answers of scripted participants."""
    from tellapart.study.create import StudyPlan, create_study
    from tellapart.study.design import open_study
    from tellapart.study.material import Material
    from tellapart.study.rehearsal import rehearse
    from tellapart.types import Item

    items = [Item(name, FilePicture(folder / "photos" / name), (text,)) for name, text in LINES.items()]
    captions = {"a": LINES, "b": {name: f"{text} there" for name, text in LINES.items()}}
    material = Material(items, captions, {item.id: item.references for item in items})
    study = create_study(folder / "study", material, StudyPlan(kind="rate", items=2, block=2, controls=1, raters=1))
    settings = folder / "study" / "study.toml"
    settings.write_text(settings.read_text().replace("TODO", "x"))
    study = open_study(study.folder)
    rehearse(study, 3, at_once=1).store.rename(folder / "study" / "answers.sqlite")
    shutil.rmtree(folder / "study" / "simulated")


def _judged(folder: Path) -> None:
    """Human judgements, in the layouts in which they were published."""
    rows = [f"{name}\t{NAMES[n - 1]}#0\t1\t{1 + n % 4}\t2\n" for n, name in enumerate(NAMES)]
    (folder / "ExpertAnnotations.txt").write_text("".join(rows))
    judged = [
        {"image_path": name, "caption": text, "rating": 1 + n % 3} for n, (name, text) in enumerate(LINES.items())
    ]
    told = {name: {"image_path": name, "ground_truth": [LINES[name]], "human_judgement": judged[n : n + 2]}
            for n, name in enumerate(NAMES)}  # fmt: skip
    _json(folder / "judged.json", told)
    thumb = [{"seg_id": name, "image": name, "hyp": text[2:], "SYS": "s", "human_score": 1.5 + n % 3}
             for n, (name, text) in enumerate(LINES.items())]  # fmt: skip
    _lines(folder / "thumb.jsonl", thumb)
    pair = [
        {"id": n, "image_id": name, "caption": LINES[name][2:] + word, "foil": bool(word), "foil_word": word or "ORIG"}
        for n, name in enumerate(NAMES)
        for word in ("", " dog")
    ]
    _json(folder / "foil.json", {"annotations": pair})
    rated = [
        {"image": name, "GT_Caption_1": text, "a": text[2:], "GPT4_Eval": json.dumps({"a": n % 3})}
        for n, (name, text) in enumerate(LINES.items())
    ]
    _lines(folder / "detailcaps.jsonl", rated)
    rows = [f"http://x/{name};{text[2:]};{1 + n % 5}\n" for n, (name, text) in enumerate(LINES.items())]
    (folder / "composite.csv").write_text("Input.image_url;Input.text1;Answer.Q1Answer\n" + "".join(rows))
