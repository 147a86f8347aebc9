"""`python -m benchmarks caption`: both sides write the same captions; its rows and its refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import Cli
from real_data import DATA

from benchmarks import run_bench
from benchmarks.caption import DECODINGS, Sides, parts_of, photos
from benchmarks.caption_models import MODELS
from benchmarks.caption_ours import Ours, dataset_of
from benchmarks.rows import PairedRow
from tellapart.errors import UsageError
from tellapart.inference.caption import caption_pictures
from tellapart.models.decoding import Decoding


@pytest.mark.data
def test_both_sides_write_the_same_captions_of_photos(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32; `measure` refuses rows whose captions differ."""
    monkeypatch.setenv("TELLAPART_DATA", str(DATA))
    command = ("caption", "--only", "tiny Qwen2-VL, greedy", "--pictures", 4, "--repeat", 2)
    done = cli(*command, "--device", "cpu", "--json", package="benchmarks.__main__")
    assert done.status == 0, done.err
    rows = json.loads(done.out)["rows"]
    ours = "tiny Qwen2-VL, greedy, ours in fp32"
    assert [row["work"] for row in rows] == [f"{ours}, pipeline in fp32", f"{ours}, loop over batches in fp32"]
    assert all(row["unit"] == "s" and row["ours"] > 0 and row["ratio"] > 0 for row in rows)
    assert "4 photos in 2 parts; theirs in fp32" in done.err
    assert "cannot be measured here" in done.err  # see `auto_is_fp32`


@pytest.mark.data
def test_ctrl_c_keeps_the_parts_that_all_sides_have_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the second part: the first one makes the rows. What is done once is shared out among all photos."""
    monkeypatch.setenv("TELLAPART_DATA", str(DATA))
    folder = MODELS["tiny Qwen2-VL"](tmp_path / "model")
    sides = Sides(folder, "tiny Qwen2-VL", DECODINGS["greedy"], "cpu", ("fp32",))
    loop, calls = sides.loop, []

    def interrupted(paths: Sequence[Path]) -> list[str]:
        calls.append(len(paths))
        if len(calls) == 3:  # before: two photos to load, and the first part
            raise KeyboardInterrupt
        return loop(paths)

    monkeypatch.setattr(sides, "loop", interrupted)
    rows, stopped = sides.measure("tiny", parts_of(photos(), 6, 3))
    assert stopped and calls == [2, 2, 2] and len(rows) == 2
    assert all(len(row.ours_R) == len(row.theirs_R) == 1 and row.ratio for row in rows)
    assert "tiny: stopped after 1 of 3 parts" in capsys.readouterr().err
    assert sides.ours["fp32"].once() > 0


@pytest.mark.data
def test_our_side_is_what_the_verb_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_DATA", str(DATA))
    ours = Ours(MODELS["tiny Qwen2-VL"](tmp_path / "model"), "prompt=a", Decoding(max_tokens=4), "cpu", "fp32")
    some, out = photos()[:3], tmp_path / "captions.jsonl"
    caption_pictures(ours.captioner, dataset_of(some), out, decoding=ours.decoding, progress=False)
    assert ours(some) == [json.loads(line)["caption"] for line in out.read_text().splitlines()]


@pytest.mark.data
def test_by_default_the_rows_that_end_within_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy captions of two batches; --only, --pictures and --full choose among all rows."""
    monkeypatch.setenv("TELLAPART_DATA", str(DATA))
    monkeypatch.setattr("benchmarks.caption.MODELS", {name: lambda folder: folder for name in MODELS})
    asked: list[tuple[str, list[int]]] = []

    def measure(self: Sides, work: str, parts: Sequence[Sequence[Path]]) -> tuple[list[PairedRow], bool]:
        asked.append((work, [len(part) for part in parts]))
        return [], False

    monkeypatch.setattr(Sides, "measure", measure)
    greedy = ["BLIP-base, greedy", "tiny Qwen2-VL, greedy"]
    run_bench("caption", device="cpu")
    assert asked == [(work, [16, 16]) for work in greedy]
    asked.clear()
    run_bench("caption", 4, "5 beams", device="cpu")
    assert asked == [("BLIP-base, 5 beams", [50] * 4), ("tiny Qwen2-VL, 5 beams", [50] * 4)]
    asked.clear()
    run_bench("caption", 2, device="cpu", full=True)
    assert len(asked) == 4 and all(sizes == [100, 100] for _, sizes in asked)


@pytest.mark.gpu
@pytest.mark.data
def test_captioning_on_a_gpu_is_three_times_as_fast_as_the_pipeline_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_DATA", str(DATA))
    rows = run_bench("caption", 3, "BLIP-base, greedy", device="cuda", precision="bf16")
    (row,) = [row for row in rows if "batch_size=16" in row.work]
    assert row.goal == 3.0 and row.met


def test_the_ratio_is_the_median_of_the_ratios_of_parts() -> None:
    row = PairedRow("work", [1.0, 10.0, 2.0], [3.0, 20.0, 2.0], 1.5, "s")
    assert (row.ours, row.theirs, row.ratio, row.met) == (2.0, 3.0, 2.0, True)


def test_parts_share_no_photo() -> None:
    paths = [Path(f"{number}.jpg") for number in range(11)]
    parts = parts_of(paths, 10, 5)
    assert [path for part in parts for path in part] == paths[:10] and {len(part) for part in parts} == {2}
    for pictures in (4, 12):
        with pytest.raises(UsageError, match=rf"--pictures {pictures}: expected between 5 \(one per part\) and 11"):
            parts_of(paths, pictures, 5)


def test_options_of_one_benchmark_are_refused_by_others(cli: Cli) -> None:
    done = cli("smile", "--pictures", 4, package="benchmarks.__main__")
    assert done.status == 2 and "smile has no option --pictures; remove it" in done.err
    done = cli("caption", "--only", "flamingo", package="benchmarks.__main__")
    assert done.status == 2 and "no row contains 'flamingo'; available: BLIP-base, greedy" in done.err
