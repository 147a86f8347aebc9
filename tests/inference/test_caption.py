"""The verb `caption`: formats, resuming, bad input, and best-of against its definition."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from PIL import Image

import tellapart
from tellapart.captioners import generate_captions, load_captioner
from tellapart.captioners.clipcap import ClipCap
from tellapart.captions.log_file import LOG_NAME
from tellapart.captions.provenance import Provenance
from tellapart.captions.store import CaptionStore
from tellapart.data import Dataset, open_data
from tellapart.errors import TellapartError, UsageError
from tellapart.features.store import FeatureStore
from tellapart.inference.best_of import BestOf
from tellapart.inference.caption import CaptionSummary, caption_pictures
from tellapart.inference.decoding_options import caption_decoding
from tellapart.inference.options import CaptionOptions
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import NewCaptioner, NewScorer
from tellapart.scorers.base import Scorer
from tellapart.training.new_models import build_captioner, build_scorer
from tellapart.training.runs import train
from tellapart.types import Item

WORDS = "a red blue green yellow dog cat ball house tree on under beside the small large"
DECODING = Decoding(kind="greedy", max_tokens=6)
COUNT = 7


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    torch.manual_seed(0)
    new = NewScorer(image_size=16, width=4, text_width=16, text_heads=2, projection=16)
    built = build_scorer(new, [WORDS], "tiny-scorer")
    built.model.eval()
    return built


@pytest.fixture(scope="module")
def captioner(scorer: Scorer) -> ClipCap:
    torch.manual_seed(1)
    new = NewCaptioner(vision="tiny-scorer", width=16, heads=2, layers=1, max_tokens=16)
    return build_captioner(new, [WORDS], scorer.model.vision_model, scorer.processor, "tiny-captioner")


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore(tmp_path / "cache")


@pytest.fixture
def photos(tmp_path: Path) -> Dataset:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(COUNT):
        Image.new("RGB", (20, 20), (number * 36, 255 - number * 30, 90)).save(folder / f"{number}.png")
    return open_data(str(folder))


def run(captioner: ClipCap, dataset: Dataset, out: Path | None, **options: object) -> CaptionSummary:
    settings: dict[str, object] = {"decoding": DECODING, "batch_size": 3, "progress": False} | options
    return caption_pictures(captioner, dataset, out, **settings)  # type: ignore[arg-type]


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_jsonl_and_csv_say_the_same(captioner: ClipCap, photos: Dataset, tmp_path: Path, store: FeatureStore) -> None:
    summary = run(captioner, photos, tmp_path / "new" / "a.jsonl")
    assert (summary.written, summary.already, len(summary.skipped)) == (COUNT, 0, 0)
    written = records(tmp_path / "new" / "a.jsonl")
    assert [record["id"] for record in written] == [item.id for item in photos]
    assert all(isinstance(record["caption"], str) for record in written)
    run(captioner, photos, tmp_path / "a.csv", store=store)  # by way of the cache, too
    with (tmp_path / "a.csv").open(newline="") as file:
        assert [{"id": r["id"], "caption": r["caption"]} for r in csv.DictReader(file)] == written
    run(captioner, photos, tmp_path / "b", format="jsonl")
    assert records(tmp_path / "b") == written


def test_metadata_names_the_files_as_data_sets_read_them(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "photos" / "metadata.jsonl"
    run(captioner, photos, out)
    run(captioner, photos, tmp_path / "a.jsonl")
    captions = {record["id"]: record["caption"] for record in records(tmp_path / "a.jsonl")}
    assert {record["file_name"]: record["text"] for record in records(out)} == captions
    known = {item.id: item.references for item in open_data(str(tmp_path / "photos"))}
    assert known == {key: (text,) if text else () for key, text in captions.items()}
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:3]))  # a kill
    assert run(captioner, photos, out).written == COUNT - 3
    assert {record["file_name"]: record["text"] for record in records(out)} == captions
    elsewhere = tmp_path / "metadata.jsonl"
    run(captioner, photos, elsewhere)
    assert [record["file_name"] for record in records(elsewhere)] == [f"photos/{key}" for key in captions]
    with pytest.raises(UsageError, match=r"is not a file, but metadata\.jsonl requires"):
        run(captioner, open_data("scenes:plain?n=2"), tmp_path / "new" / "metadata.jsonl")


def test_captions_are_those_of_the_captioner(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    captioner.model.train()  # the verb must decode without dropout, and leave the mode as it was
    run(captioner, photos, tmp_path / "a.jsonl", decoding=Decoding(kind="beam", beams=2, max_tokens=6))
    assert captioner.model.training
    captioner.model.eval()
    images = [item.picture.image() for item in photos]
    visual = captioner.encode(captioner.pixels(images))
    expected = generate_captions(captioner, visual, Decoding(kind="beam", beams=2, max_tokens=6))
    assert [record["caption"] for record in records(tmp_path / "a.jsonl")] == expected


def test_the_best_beams_are_kept(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    """Paper 4, Table 4: the five best of beam search."""
    captioner.model.eval()
    decoding = caption_decoding(CaptionOptions(beams=5, max_tokens=6, samples=5), DEFAULT)
    run(captioner, photos, tmp_path / "a.jsonl", decoding=decoding)
    written = [record["captions"] for record in records(tmp_path / "a.jsonl")]
    visual = captioner.encode(captioner.pixels([item.picture.image() for item in photos]))
    texts = generate_captions(captioner, visual, decoding)
    assert written == [texts[start : start + 5] for start in range(0, len(texts), 5)]
    one = generate_captions(captioner, visual, Decoding(kind="beam", beams=5, max_tokens=6))
    assert [captions[0] for captions in written] == one, "the best beam stands first"


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_resumes_after_a_kill_anywhere(captioner: ClipCap, photos: Dataset, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"a.{suffix}"
    run(captioner, photos, out)
    whole = out.read_bytes()
    for length in range(0, len(whole) + 1, 7):
        out.write_bytes(whole[:length])
        header = suffix == "csv"
        there = max(0, whole[: length + 1].count(b"\n") - header)  # a line without its end is whole
        summary = run(captioner, photos, out)
        assert out.read_bytes() == whole
        assert (summary.written, summary.already) == (COUNT - there, there)


@pytest.mark.parametrize("line", ["{}", '{"id": "2.png"}', '{"id": "2.png", "captions": []}', '["2.png", "a dog"]'])
def test_a_line_without_a_caption_is_not_a_picture_that_is_done(
    captioner: ClipCap, photos: Dataset, tmp_path: Path, line: str
) -> None:
    out = tmp_path / "a.jsonl"
    run(captioner, photos, out)
    whole = out.read_text().splitlines()
    out.write_text("\n".join([*whole[:2], line, *whole[3:]]) + "\n")
    with pytest.raises(UsageError, match=r"a\.jsonl, line 3: not a caption in this command's format"):
        run(captioner, photos, out)


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_replaced_pictures_are_captioned_again(
    captioner: ClipCap, photos: Dataset, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Same name, other content; a copy of the same content, with another time, is not."""
    out, folder = tmp_path / f"a.{suffix}", tmp_path / "photos"
    run(captioner, photos, out)
    old = (folder / "2.png").stat()
    Image.new("RGB", (31, 20), (0, 255, 90)).save(folder / "2.png")
    os.utime(folder / "2.png", ns=(old.st_atime_ns, old.st_mtime_ns))
    (folder / "5.png").touch()
    summary = run(captioner, photos, out)
    assert (summary.written, summary.already) == (1, COUNT - 1)
    assert (
        "a." in (told := capsys.readouterr().err)
        and "1 pictures have since been replaced and are captioned again" in told
    )
    run(captioner, photos, tmp_path / f"anew.{suffix}")
    assert sorted(out.read_text().splitlines()) == sorted((tmp_path / f"anew.{suffix}").read_text().splitlines())
    assert run(captioner, photos, out).already == COUNT
    assert [path.name for path in tmp_path.glob(".*")] == [LOG_NAME]


def test_txt_beside_each_picture(
    captioner: ClipCap, photos: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    human = tmp_path / "photos" / "3.txt"
    human.write_text("by a person")
    summary = run(captioner, photos, None, format="txt")
    assert (summary.written, summary.already) == (COUNT - 1, 1)
    assert human.read_text() == "by a person"
    os.utime(tmp_path / "photos" / "4.png")
    assert run(captioner, photos, None, format="txt").written == 0, "the same picture"
    run(captioner, photos, tmp_path / "a.jsonl")
    expected = {str(record["id"]): record["caption"] for record in records(tmp_path / "a.jsonl")}
    for name, caption in expected.items():
        if name != "3.png":
            assert (tmp_path / "photos" / name).with_suffix(".txt").read_text() == f"{caption}\n"
    assert run(captioner, photos, None, format="txt", overwrite=True).written == COUNT - 1
    assert human.read_text() == "by a person"
    assert (
        "1 .txt files were written, edited or accepted by hand and are kept; pass --replace-edited to"
        in capsys.readouterr().err
    )
    assert run(captioner, photos, None, format="txt", replace_edited=True).written == 1
    assert human.read_text() == f"{expected['3.png']}\n"
    history = CaptionStore.open(tmp_path / "photos").history("3.png")
    assert history[0].before == "by a person" and history[0].author.model
    assert [path.name for path in (tmp_path / "photos").glob(".*")] == [LOG_NAME]


def test_txt_refuses_what_it_cannot_do(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--format txt without -o"):
        run(captioner, photos, tmp_path / "a.txt")
    with pytest.raises(UsageError, match=r"is not a file.*captions\.jsonl"):
        run(captioner, open_data("scenes:plain?n=2"), None, format="txt")
    Image.new("RGB", (4, 4)).save(tmp_path / "photos" / "0.gif")
    with pytest.raises(UsageError, match=r"0\.gif and .*0\.png would both use"):
        run(captioner, open_data(str(tmp_path / "photos")), None, format="txt")


def test_samples_are_the_same_in_any_batch(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    """Batch size, a resume, and pictures that cannot be read change nothing for the others."""
    decoding = Decoding(kind="sample", samples=4, temperature=1.5, max_tokens=6)
    files = [tmp_path / f"{size}.jsonl" for size in (1, 3, 8)]
    for out, size in zip(files, (1, 3, 8), strict=True):
        run(captioner, photos, out, batch_size=size, decoding=decoding)
    whole = files[0].read_bytes()
    assert [out.read_bytes() for out in files] == [whole] * 3
    assert len({str(record["captions"]) for record in records(files[0])}) == COUNT
    files[0].write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    run(captioner, photos, files[0], batch_size=3, decoding=decoding)
    assert files[0].read_bytes() == whole
    (tmp_path / "photos" / "1.png").write_bytes(b"")
    run(captioner, photos, tmp_path / "less.jsonl", batch_size=3, decoding=decoding)
    assert records(tmp_path / "less.jsonl") == [record for record in records(files[1]) if record["id"] != "1.png"]


def test_best_of_samples_the_same_in_any_batch(
    captioner: ClipCap, scorer: Scorer, photos: Dataset, tmp_path: Path, store: FeatureStore
) -> None:
    """Scores may differ in their last digits: a batch is padded to its longest caption."""
    told = []
    for size in (1, 3, 8):
        out = tmp_path / f"{size}.jsonl"
        run(captioner, photos, out, batch_size=size, best_of=4, scorer=scorer, store=store)
        told.append([sorted(one["caption"] for one in record["candidates"]) for record in records(out)])  # type: ignore
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("cached", [True, False])
def test_unreadable_pictures_are_left_out_and_named(
    captioner: ClipCap, photos: Dataset, tmp_path: Path, store: FeatureStore, cached: bool
) -> None:
    (tmp_path / "photos" / "2.png").write_bytes((tmp_path / "photos" / "2.png").read_bytes()[:60])
    for number in (4, 5):
        (tmp_path / "photos" / f"{number}.png").unlink()
    summary = run(captioner, photos, tmp_path / "a.jsonl", store=store if cached else None)
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["0.png", "1.png", "3.png", "6.png"]
    assert [(Path(name).name, why.split(" (")[0]) for name, why in summary.skipped] == [
        ("2.png", "truncated"),
        ("4.png", "no such file"),
        ("5.png", "no such file"),
    ]
    assert photos.report()[0].startswith("3 of 7 pictures could not be read: ")


def test_not_one_readable_picture_is_a_failure_that_leaves_nothing(
    captioner: ClipCap, photos: Dataset, tmp_path: Path
) -> None:
    for item in photos:
        Path(item.picture.name).write_bytes(b"")
    with pytest.raises(TellapartError, match=r"7 of 7 pictures could not be read: .*empty file"):
        run(captioner, photos, tmp_path / "a.jsonl")
    assert not (tmp_path / "a.jsonl").exists()


def test_a_file_of_other_settings_is_not_gone_on_with(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    run(captioner, photos, out)
    before = out.read_bytes()
    with pytest.raises(UsageError, match=r"started with a different decoding; pass --overwrite"):
        run(captioner, photos, out, decoding=Decoding(kind="beam", max_tokens=6))
    assert run(captioner, Dataset("other", list(photos)), out).already == COUNT, "the same pictures"
    captioner.chosen = {"prompt": "in this picture"}  # as a model's own folder has it
    try:
        with pytest.raises(UsageError, match="started with a different captioner_options"):
            run(captioner, photos, out)
    finally:
        captioner.chosen = {}
    with torch.no_grad():
        weight = next(captioner.model.language_model.parameters())
        weight += 1
        try:
            with pytest.raises(UsageError, match="started with a different captioner_weights"):
                run(captioner, photos, out)
        finally:
            weight -= 1
    with pytest.raises(UsageError, match="already exists; pass --overwrite to start it over, or choose another file"):
        run(captioner, photos, out, resume=False)
    assert out.read_bytes() == before
    run(captioner, photos, out, decoding=Decoding(kind="greedy", max_tokens=2), overwrite=True)
    assert len(records(out)) == COUNT and out.read_bytes() != before


def test_files_of_others_are_left_alone(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    out.write_text('{"id": "0.png", "caption": "by a person"}\n')
    for options in ({}, {"overwrite": True}):
        with pytest.raises(UsageError, match=r"a\.jsonl .*was not written by this command; (also )?pass"):
            run(captioner, photos, out, **options)
    assert "person" in out.read_text()
    out.unlink()
    run(captioner, photos, out)
    out.write_text("no json\n" + out.read_text())
    with pytest.raises(UsageError, match="line 1: not a caption"):
        run(captioner, photos, out)
    with pytest.raises(UsageError, match="a folder"):
        run(captioner, photos, tmp_path / "photos", format="jsonl")
    with pytest.raises(UsageError, match="cannot infer the format"):
        run(captioner, photos, tmp_path / "a.xml")
    with pytest.raises(UsageError, match="unknown format 'xml'"):
        run(captioner, photos, tmp_path / "a.xml", format="xml")
    with pytest.raises(UsageError, match="missing output file"):
        run(captioner, photos, None)


def test_two_runs_into_one_file(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    run(captioner, photos, out)
    code = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="another process is writing to this file; choose another file"):
        run(captioner, photos, out)
    holder.communicate("\n")
    assert run(captioner, photos, out).already == COUNT


def test_a_file_that_a_kill_left_empty_is_begun(captioner: ClipCap, photos: Dataset, tmp_path: Path) -> None:
    """The process ended between making the file and writing what made it; a file with text is not ours to replace."""
    for name in ("a.jsonl", "a.csv"):
        (tmp_path / name).touch()
        assert run(captioner, photos, tmp_path / name).written == COUNT
    (tmp_path / "b.jsonl").write_text("mine")
    with pytest.raises(UsageError, match="exists and was not written by this command"):
        run(captioner, photos, tmp_path / "b.jsonl")


def test_full_disk_keeps_whole_lines_and_resumes(captioner: ClipCap, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root and the right to mount")
    try:
        dataset = open_data("scenes:plain?n=9&size=32")
        out = disk / "a.jsonl"
        run(captioner, dataset[:3], out)
        filler = disk / "filler"
        with filler.open("wb") as file, pytest.raises(OSError):
            file.write(b"x" * 40_000)
        # The last page of the file is written still; what does not fit there must be cut off again.
        big = Dataset(dataset.spec, [Item(item.id + "x" * 1500, item.picture) for item in dataset])
        with pytest.raises(
            TellapartError, match=r"No space left on device; \d captions were saved; free some disk space"
        ):
            run(captioner, big, out)
        kept = len(records(out))
        filler.unlink()
        assert run(captioner, big, out).already == kept, "the first three are the same pictures"
        assert len(records(out)) == 9
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# -- best of N


def test_best_of_keeps_the_caption_that_its_definition_says(
    captioner: ClipCap, scorer: Scorer, photos: Dataset, tmp_path: Path, store: FeatureStore
) -> None:
    torch.manual_seed(3)
    decoding = Decoding(kind="sample", max_tokens=6, temperature=1.5)
    run(captioner, photos, tmp_path / "a.jsonl", best_of=5, scorer=scorer, store=store, decoding=decoding)
    features_ND = scorer.image_features(scorer.pixels([item.picture.image() for item in photos]))
    chosen_otherwise = 0
    for place, record in enumerate(records(tmp_path / "a.jsonl")):
        candidates = record["candidates"]
        assert isinstance(candidates, list) and len(candidates) == 5
        texts = [candidate["caption"] for candidate in candidates]
        logits_SN = scorer.scale * scorer.text_features(texts) @ features_ND.T  # all 7 are its neighbours
        scores_S = logits_SN.log_softmax(-1)[:, place]
        torch.testing.assert_close(
            torch.tensor([candidate["score"] for candidate in candidates]), scores_S, rtol=1e-3, atol=1e-4
        )
        assert record["caption"] == texts[0] and record["score"] == candidates[0]["score"]
        assert scores_S[0] >= scores_S.max() - 1e-4
        chosen_otherwise += int(logits_SN[:, place].argmax() != 0)
    assert chosen_otherwise  # telling apart is not the same as fitting


def test_neighbours_are_the_nearest_of_the_whole_data_set(scorer: Scorer, photos: Dataset, store: FeatureStore) -> None:
    chooser = BestOf.among(photos, scorer, store, distractors=2, progress=False)
    features_ND = store.features(photos, scorer.encoder)
    sets = chooser._sets([4])[0]
    some = BestOf.among(photos, scorer, store, wanted=[photos[4].id, "unknown"], distractors=2, progress=False)
    assert torch.equal(some._sets([4])[0], sets), "one search, of the wanted pictures alone"
    similarity_N = torch.tensor(features_ND @ features_ND[4])
    order = [int(place) for place in similarity_N.argsort(descending=True) if place != 4]
    torch.testing.assert_close(sets, torch.tensor(features_ND[[4, *order[:2]]]))


def test_best_of_alone_in_the_data_set_takes_the_most_similar(
    captioner: ClipCap, scorer: Scorer, photos: Dataset, tmp_path: Path, store: FeatureStore
) -> None:
    run(captioner, photos[:1], tmp_path / "a.csv", best_of=3, scorer=scorer, store=store)
    with (tmp_path / "a.csv").open(newline="") as file:
        [row] = list(csv.DictReader(file))
    features = scorer.image_features(scorer.pixels([photos[0].picture.image()])).detach()
    cosine = float(scorer.scale * (scorer.text_features([row["caption"]]) @ features.T))
    assert float(row["score"]) == pytest.approx(cosine, rel=1e-3)


def test_best_of_leaves_out_the_unreadable(
    captioner: ClipCap, scorer: Scorer, photos: Dataset, tmp_path: Path, store: FeatureStore
) -> None:
    (tmp_path / "photos" / "0.png").write_text("no picture")
    summary = run(captioner, photos, tmp_path / "a.jsonl", best_of=2, scorer=scorer, store=store)
    assert summary.written == COUNT - 1 and len(summary.skipped) == 1


def test_best_of_needs_a_scorer_and_two_samples(
    captioner: ClipCap, scorer: Scorer, photos: Dataset, tmp_path: Path
) -> None:
    asked = Decoding(kind="consensus", candidates=3, scorer_weight=0.1)
    wrong = ({"best_of": 4}, {"best_of": 1, "scorer": scorer}, {"scorer": scorer}, {"batch_size": 0})
    for options in (*wrong, {"decoding": asked}):
        with pytest.raises(UsageError):
            run(captioner, photos, tmp_path / "a.jsonl", **options)
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize("what", ["configuration", "chat template"])
def test_a_model_that_was_changed_does_not_go_on(
    what: str, cli: Cli, tiny_captioner: Path, photos: Dataset, tmp_path: Path
) -> None:
    """Its weights are the same; else one file holds the captions of two models."""
    model, out = tmp_path / "model", tmp_path / "c.jsonl"
    shutil.copytree(tiny_captioner, model)
    command = ("caption", model, photos.spec, "-o", out, "--beams", 1, "--max-tokens", 5)
    assert cli(*command).status == 0
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:3]))
    assert cli(*command).status == 0, "as after an interruption"
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:3]))
    (model / "SHA256SUMS").unlink()
    if what == "configuration":
        config = json.loads((model / "config.json").read_text())
        config["text_config"]["layer_norm_epsilon"] = 0.5
        (model / "config.json").write_text(json.dumps(config))
    else:
        (model / "chat_template.jinja").write_text("{{ messages }}")
    done = cli(*command)
    assert done.status == 2 and "was started with a different captioner_settings" in done.err


def test_the_caption_of_one_picture_is_printed(
    tiny_captioner: Path, photos: Dataset, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(photos.spec)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    one = cli("-q", "caption", tiny_captioner, folder / "0.png")
    said = load_captioner(str(tiny_captioner)).caption([folder / "0.png"])
    assert (one.status, one.out, one.err) == (0, f"{said[0]}\n", "")
    several = cli("-q", "caption", tiny_captioner, folder / "0.png", "--samples", "3")
    assert several.status == 0 and several.out.count("\n") == 3
    assert "-o - to print them" in cli("caption", tiny_captioner, folder / "0.png", folder / "1.png").line
    assert not list(Path().iterdir()), "nothing is written"


def test_captions_go_to_standard_output_as_to_a_file(
    tiny_captioner: Path, photos: Dataset, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a quoted pattern stands for its files, as where the shell expands it."""
    folder, files = Path(photos.spec), sorted(Path(photos.spec).glob("*.png"))
    assert cli("caption", tiny_captioner, *files, "-o", tmp_path / "captions.jsonl").status == 0
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    printed = cli("-q", "caption", tiny_captioner, folder / "*.png", "-o", "-")
    assert printed.out == (tmp_path / "captions.jsonl").read_text() and len(printed.out.splitlines()) == COUNT
    table = cli("-q", "caption", tiny_captioner, folder / "[0-2].png", "-o", "-", "--format", "csv").out
    rows = list(csv.DictReader(table.splitlines()))
    assert [json.loads(line)["caption"] for line in printed.out.splitlines()[:3]] == [row["caption"] for row in rows]
    assert "no such file or folder" in cli("caption", tiny_captioner, folder / "*.jpeg", "-o", "-").line
    assert not list(Path().iterdir()), "nothing is written"


def test_a_prompt_may_be_an_option(tiny_captioner: Path, photos: Dataset, cli: Cli) -> None:
    picture = Path(photos.spec) / "0.png"
    prompted = cli("-q", "caption", tiny_captioner, picture, "--prompt", "a red & blue")
    assert prompted.status == 0 and prompted.out == cli("-q", "caption", f"{tiny_captioner}?prompt=a red %26 blue",
                                                        picture).out  # fmt: skip
    assert (
        "already contains a prompt; remove it from the name, or remove --prompt"
        in cli("caption", f"{tiny_captioner}?prompt=a", picture, "--prompt", "b").line
    )


def test_captions_from_python(tiny_captioner: Path, photos: Dataset) -> None:
    """PIL pictures of any mode, or paths; ``import tellapart`` alone loads neither torch nor transformers."""
    captioner = tellapart.load_captioner(str(tiny_captioner))
    files = sorted(Path(photos.spec).glob("*.png"))
    images = [Image.open(file).convert("RGBA") for file in files]
    texts = captioner.caption(files)
    assert texts == captioner.caption(images, batch_size=2) and len(texts) == COUNT
    with pytest.raises(UsageError, match="caption expects a list of pictures; for a"):
        captioner.caption(str(files[0]))
    code = "import sys, tellapart; print(sorted({'torch', 'transformers', 'PIL'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"


def test_a_run_captions_as_it_was_evaluated(
    tiny_recipe: dict[str, Any], photos: Dataset, tmp_path: Path, cli: Cli
) -> None:
    """Its model carries the recipe's decoding; options change it, and captions that are cut are counted and said."""
    decoding = {"kind": "beam", "beams": 2, "max_tokens": 3}
    evaluation = {**tiny_recipe.get("evaluation", {}), "decoding": decoding}
    training = {**tiny_recipe["training"], "steps": 1}
    recipe = check_recipe({**tiny_recipe, "training": training, "evaluation": evaluation}, "test")
    run = train(recipe, tmp_path / "run", evaluate=False)

    def settings_of(*options: str) -> tuple[dict[str, Any], str]:
        done = cli("caption", run.folder, photos.spec, "-o", tmp_path / "a.jsonl", "--overwrite", *options)
        assert done.status == 0, done.err
        made = (Provenance.open(tmp_path / "a.jsonl").settings or {})["decoding"]
        return {key: made[key] for key in decoding}, done.err

    made, said = settings_of()
    assert made == decoding
    assert re.search(r"\d of 7 generated captions were truncated at 3 tokens; .* --max-tokens", said)
    assert settings_of("--beams", "3")[0] == {"kind": "beam", "beams": 3, "max_tokens": 3}
    assert settings_of("--max-tokens", "4")[0] == {**decoding, "max_tokens": 4}
    assert load_captioner(str(run.folder)).decoding == Decoding.model_validate(decoding)
