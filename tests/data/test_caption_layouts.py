"""Caption files as other programs write them: read, and matched with a folder of COCO's pictures."""

from __future__ import annotations

import gzip
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from real_data import DATA

from tellapart.data import open_data
from tellapart.data.caption_file import CaptionFile
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.data.caption_matching import KnownIds, match_captions, match_ids
from tellapart.data.csv_text import separator_of
from tellapart.data.sidecars import is_prose, lines_in
from tellapart.errors import UsageError
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval

IDS = (391895, 522418, 184613)
TEXTS = ("a man on a bike", "a woman cutting a cake", "a child with an umbrella, in the rain")
FILES = [f"COCO_val2014_{id_:012d}.jpg" for id_ in IDS]
PAIRS = list(zip(IDS, FILES, TEXTS, strict=True))
GT = "Faithfulness to picture and references"


def lines(records: list[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def lmms(number: int, id_: int, file: str, text: str) -> dict[str, Any]:
    """As lmms-eval logs a sample of coco2014_cap_val."""
    return {
        "doc_id": number, "target": [GT, "and again"], "doc": {"question_id": file, "id": id_, "answer": [GT]},
        "arguments": {"0": "Provide a one-sentence caption"}, "resps": [[text]], "filtered_resps": [text],
        "doc_hash": "0", "coco_CIDEr": {"answer": [GT], "pred": text, "image_id": id_},
    }  # fmt: skip


def lmms_now(number: int, id_: int, file: str, text: str) -> dict[str, Any]:
    """The same of the lmms-eval of 2026, which writes neither the document nor the unfiltered answers."""
    target = str([GT, "and again"])
    sample = {
        key: value for key, value in lmms(number, id_, file, text).items() if key in ("filtered_resps", "doc_hash")
    }
    metric = {"answer": [GT, "and again"], "pred": text, "image_id": id_, "id": 7000 + number}
    return {"doc_id": number, "target": target, **sample, "coco_CIDEr": metric, "input": "Provide a caption"}


def conversation(id_: int, file: str, text: str) -> dict[str, Any]:
    """A record of LLaVA's training data."""
    turns = [{"from": "human", "value": "<image>\nDescribe it."}, {"from": "gpt", "value": text}]
    return {"id": f"{id_:012d}", "image": f"coco/val2014/{file}", "conversations": turns}


def chat(text: str) -> list[dict[str, Any]]:
    """What transformers' image-text-to-text pipeline gives for a chat."""
    asked = {"role": "user", "content": [{"type": "image", "image": "x.jpg"}, {"type": "text", "text": "Describe."}]}
    return [asked, {"role": "assistant", "content": [{"type": "text", "text": text}]}]


def served(file: str, text: str) -> dict[str, Any]:
    """A line of the result of a server's batch."""
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
    return {"id": "batch_1", "custom_id": file, "response": {"status_code": 200, "body": body}}


def spoken(text: str) -> list[dict[str, Any]]:
    """An answer in pieces, with what the model thought before it."""
    return [{"type": "thinking", "thinking": "let me see"}, {"type": "text", "text": text}]


def labelled(id_: int, file: str, text: str) -> dict[str, Any]:
    """A task of Label Studio's JSON export: the file's name has a prefix since its upload."""
    result = [{"id": "z", "type": "textarea", "value": {"text": [text]}, "to_name": "image", "from_name": "caption"}]
    return {"id": 7000 + id_, "data": {"captioning": f"/data/upload/1/8f3e21ab-{file}"},
            "annotations": [{"id": 9, "completed_by": 1, "result": result, "was_cancelled": False}],
            "predictions": []}  # fmt: skip


LAYOUTS: dict[str, tuple[str, str]] = {
    "ours": ("c.jsonl", lines([{"id": f, "caption": t} for _, f, t in PAIRS])),
    "COCO results": ("c.json", json.dumps([{"image_id": i, "caption": t} for i, _, t in PAIRS])),
    "COCO annotations": ("c.json", json.dumps({
        "images": [{"id": n, "file_name": f} for n, (_, f, _) in enumerate(PAIRS)],
        "annotations": [{"id": 9 + n, "image_id": n, "caption": t} for n, (_, _, t) in enumerate(PAIRS)]})),
    "image and text": ("c.jsonl", lines([{"image": f"photos/{f}", "text": t} for _, f, t in PAIRS])),
    "file name and prediction": ("c.jsonl", lines([{"file_name": f, "caption": GT, "prediction": t}
                                                   for _, f, t in PAIRS])),
    "image path and output": ("c.json", json.dumps([{"image_path": f"/data/val2014/{f}", "prompt": "Describe",
                                                     "output": t} for _, f, t in PAIRS])),
    "filename and response": ("c.json", json.dumps([{"filename": f[:-4], "response": t} for _, f, t in PAIRS])),
    "an address": ("c.csv", "url,caption\n" + "".join(f'https://h/x/{f}?w=1,"{t}"\n' for _, f, t in PAIRS)),
    "CSV": ("c.csv", "image,caption\n" + "".join(f'{f},"{t}"\n' for _, f, t in PAIRS)),
    "CSV of pandas": ("c.csv", ",image_id,Caption\n" + "".join(f'{n},{i}.0,"{t}"\n'
                                                                for n, (i, _, t) in enumerate(PAIRS))),
    "CSV with semicolons": ("c.csv", "Image;Text\n" + "".join(f"{f};{t}\n" for _, f, t in PAIRS)),
    "TSV": ("c.tsv", "filename\tcaption\n" + "".join(f"{f}\t{t}\n" for _, f, t in PAIRS)),
    "TSV without header": ("c.tsv", "".join(f"{f}\t{t}\n" for _, f, t in PAIRS)),
    "Kaggle's captions.txt": ("captions.txt", "image,caption\n" + "".join(f'{f},"{t}"\n' for _, f, t in PAIRS)),
    "Flickr30k's results": ("results.csv", "image_name| comment_number| comment\n"
                            + "".join(f"{f}| 0| {t}\n" for _, f, t in PAIRS)),
    "names and tabs": ("c.txt", "".join(f"{f}\t{t}\n" for _, f, t in PAIRS)),
    "Flickr8k tokens": ("c.txt", "".join(f"{f}#0\t{t}\n" for _, f, t in PAIRS)),
    "metadata.jsonl": ("metadata.jsonl", lines([{"file_name": f, "text": t} for _, f, t in PAIRS])),
    "pipeline": ("c.json", json.dumps([{"generated_text": t} for _, _, t in PAIRS])),
    "pipeline, a list each": ("c.json", json.dumps([[{"generated_text": t}] for _, _, t in PAIRS])),
    "pipeline, a line each": ("c.jsonl", lines([[{"generated_text": t}] for _, _, t in PAIRS])),
    "pipeline of a chat": ("c.json", json.dumps([[{"input_text": chat(t)[:1], "generated_text": chat(t)}]
                                                 for _, _, t in PAIRS])),
    "LLaVA's answers": ("answers.jsonl", lines([
        {"question_id": n, "prompt": "Describe", "text": t, "answer_id": "x", "model_id": "m", "image": f}
        for n, (_, f, t) in enumerate(PAIRS)])),
    "LLaVA's answers by picture": ("answers.jsonl", lines([
        {"question_id": f, "prompt": "Describe", "text": t, "metadata": {}} for _, f, t in PAIRS])),
    "LLaVA's training": ("llava.json", json.dumps([conversation(*pair) for pair in PAIRS])),
    "chats": ("c.jsonl", lines([{"images": [f], "messages": chat(t)} for _, f, t in PAIRS])),
    "lmms-eval": ("samples_coco.jsonl", lines([lmms(n, *pair) for n, pair in enumerate(PAIRS)])),
    "lmms-eval's current samples": ("x_samples_coco2014_cap_val.jsonl",
                                    lines([lmms_now(n, *pair) for n, pair in enumerate(PAIRS)])),
    "GIT's TSV": ("c.tsv", "".join(f'{i}\t{json.dumps([{"caption": t}])}\n' for i, _, t in PAIRS)),
    "VinVL's TSV": ("c.tsv", "".join(f'{i}\t{json.dumps([{"caption": t, "conf": 0.9}])}\n' for i, _, t in PAIRS)),
    "GIT's TSV called .txt": ("c.txt", "".join(f'{i}\t{json.dumps([{"caption": t}])}\n' for i, _, t in PAIRS)),
    "CSV with dictionaries": ("c.csv", "image,caption\n" + "".join(f'{f},"{[{"raw": t}]}"\n' for _, f, t in PAIRS)),
    "JSON pairs": ("c.json", json.dumps([[f, t] for _, f, t in PAIRS])),
    "JSON pairs by number": ("c.json", json.dumps([[i, t] for i, _, t in PAIRS])),
    "JSON pairs, a line each": ("c.jsonl", lines([[f, t] for _, f, t in PAIRS])),
    "names and commas": ("c.txt", "".join(f"{f},{t}\n" for _, f, t in PAIRS)),
    "names, commas and quotes": ("c.txt", "".join(f'{f}, "{t}"\n' for _, f, t in PAIRS)),
    "names, numbers and bars": ("c.txt", "".join(f"{f}| 0| {t}\n" for _, f, t in PAIRS)),
    "names and blanks": ("c.txt", "".join(f"{f} {t}\n" for _, f, t in PAIRS)),
    "numbers and tabs": ("c.txt", "".join(f"{i}\t{t}\n" for i, _, t in PAIRS)),
    "numbered captions": ("c.csv", "image,caption_0\n" + "".join(f'{f},"{t}"\n' for _, f, t in PAIRS)),
    "id to text": ("c.json", json.dumps({str(i): t for i, _, t in PAIRS})),
    "stem to texts": ("c.json", json.dumps({f[:-4]: [t] for _, f, t in PAIRS})),
    "pycocoevalcap": ("c.json", json.dumps({str(i): [{"image_id": i, "id": 0, "caption": t}] for i, _, t in PAIRS})),
    "id to record": ("c.json", json.dumps({f: {"caption": t, "score": 1.0} for _, f, t in PAIRS})),
    "wrapped": ("c.json", json.dumps({"model": "m", "predictions": [{"image": f, "caption": t} for _, f, t in PAIRS]})),
    "a batch of a server": ("out.jsonl", lines([served(f, t) for _, f, t in PAIRS])),
    "a batch of OpenAI's responses": ("out.jsonl", lines([
        {"custom_id": f, "response": {"body": {"output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": t}]}]}}}
        for _, f, t in PAIRS])),
    "a batch of Anthropic's": ("out.jsonl", lines([
        {"custom_id": f[:-4], "result": {"type": "succeeded", "message": {"role": "assistant", "content": spoken(t)}}}
        for _, f, t in PAIRS])),
    "a batch of Gemini's": ("out.jsonl", lines([
        {"key": f, "response": {"candidates": [{"content": {"parts": [{"text": t}], "role": "model"}}]}}
        for _, f, t in PAIRS])),
    "Label Studio": ("export.json", json.dumps([labelled(*pair) for pair in PAIRS])),
    "Label Studio, short": ("export.json", json.dumps([
        {"captioning": f"/data/upload/1/8f3e21ab-{f}", "id": n, "caption": t, "annotator": 1}
        for n, (_, f, t) in enumerate(PAIRS)])),
    "LLaMA-Factory's predictions": ("generated_predictions.jsonl", lines([
        {"prompt": "Describe", "predict": t, "label": GT} for t in TEXTS])),
    "Florence-2": ("c.json", json.dumps({f: {"<MORE_DETAILED_CAPTION>": t} for _, f, t in PAIRS})),
    "a caption a line": ("c.txt", "".join(t + "\n" for t in TEXTS)),
    "a JSON list of texts": ("c.json", json.dumps(TEXTS)),
}  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pictures in 3:2, called as COCO calls them; in the order of the captions."""
    folder = tmp_path_factory.mktemp("coco") / "val2014"
    folder.mkdir()
    for number, file in enumerate(FILES):
        Image.new("RGB", (60, 40), (80 * number, 90, 20)).save(folder / file)
    return folder


def known_of(photos: Path) -> KnownIds:
    items = open_data(f"folder:{photos}")
    ids = sorted((item.id for item in items), key=FILES.index)
    return KnownIds("the data", ids, {item.id: str(item.picture.path) for item in items})


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_each_picture_its_caption(layout: str, photos: Path, tmp_path: Path) -> None:
    name, content = LAYOUTS[layout]
    (tmp_path / name).write_text(content)
    read = read_caption_file(tmp_path / name)
    if read.numbered:
        assert list(read.texts.values()) == [[text] for text in TEXTS]
        with pytest.raises(UsageError, match="system: the 3 entries have no ids"):
            match_captions(read, known_of(photos), "system")
        return
    matched = match_captions(read, known_of(photos), "system")
    assert matched.texts == {file: [text] for file, text in zip(FILES, TEXTS, strict=True)}
    assert (matched.how is None) == (read_caption_file(tmp_path / name).texts.keys() == set(FILES))


def batches() -> dict[str, list[dict[str, Any]]]:
    """Results of a server's batch: two answers, and what else is found among them."""
    (_, one, said), (_, two, _), (_, three, also) = PAIRS
    too_long = {"type": "invalid_request_error", "message": "image\nexceeds 5 MB"}
    anthropic = [
        {"type": "succeeded", "message": {"role": "assistant", "content": spoken(said)}},
        {"type": "errored", "error": {"type": "error", "error": too_long, "request_id": "r"}},
        {"type": "succeeded", "message": {"role": "assistant", "content": spoken(also)}},
        {"type": "expired"},
        {"type": "canceled"},
    ]
    refused = {"status_code": 400, "request_id": "r", "body": {"error": too_long}}
    expired = {"code": "batch_expired", "message": "not in time"}
    return {
        "Anthropic": [
            {"custom_id": file, "result": result}
            for file, result in zip((one, two, three, "4.jpg", "5.jpg"), anthropic, strict=True)
        ],
        "OpenAI": [
            {**served(one, said), "error": None},
            {"id": "b", "custom_id": two, "response": refused, "error": None},
            {**served(three, also), "error": None},
            {"id": "b", "custom_id": "4.jpg", "response": None, "error": expired},
            {"id": "b", "custom_id": "5.jpg", "response": {**refused, "status_code": 500, "body": ""}, "error": None},
        ],
    }


@pytest.mark.parametrize("server", ["Anthropic", "OpenAI"])
def test_lines_of_a_batch_without_an_answer_are_named(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = batches()[server]
    (tmp_path / "out.jsonl").write_text(lines(records))
    (tmp_path / "out.json").write_text(json.dumps(records))
    for name in ("out.jsonl", "out.json"):
        read = read_caption_file(tmp_path / name)
        assert read.texts == {FILES[0]: [TEXTS[0]], FILES[2]: [TEXTS[2]]} and not read.numbered
        (said,) = capsys.readouterr().err.splitlines()
        why = {"Anthropic": "errored", "OpenAI": "status 400"}[server]
        assert f"3 of 5 lines contain no complete answer: '{FILES[1]}' ({why}: image exceeds 5 MB), '4.jpg' (" in said
    repeated = [*records[1:2], {**records[0], "custom_id": FILES[1]}]
    (tmp_path / "again.jsonl").write_text(lines(repeated))
    assert read_caption_file(tmp_path / "again.jsonl").texts == {FILES[1]: [TEXTS[0]]}
    assert not capsys.readouterr().err, "what was asked again is no failure"
    (tmp_path / "none.jsonl").write_text(lines(records[3:]))
    with pytest.raises(UsageError, match=r"2 of 2 lines contain no complete answer: '4.jpg' \(.*at least one caption"):
        read_caption_file(tmp_path / "none.jsonl")


def test_half_answers_and_reasoning_of_a_batch_are_no_captions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As from a server that is asked: what was cut or filtered is no caption, and thoughts are no part of one."""
    said = "<think>A dog?</think>a dog<|im_end|>"

    def openai(reason: str) -> dict[str, Any]:
        return {"status_code": 200, "body": {"choices": [{"message": {"content": said}, "finish_reason": reason}]}}

    def anthropic(reason: str) -> dict[str, Any]:
        return {"type": "succeeded", "message": {"content": [{"type": "text", "text": "a dog"}], "stop_reason": reason}}

    def gemini(reason: str) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [{"text": said}]}, "finishReason": reason}]}

    for name, key, answer, reasons in (
        ("openai", "response", openai, ("stop", "length", "content_filter")),
        ("anthropic", "result", anthropic, ("stop_sequence", "max_tokens", "refusal")),
        ("gemini", "response", gemini, ("STOP", "MAX_TOKENS", "SAFETY")),
    ):
        file = tmp_path / f"{name}.jsonl"
        file.write_text(lines([{"custom_id": f"{n}.jpg", key: answer(reason)} for n, reason in enumerate(reasons)]))
        assert read_caption_file(file).texts == {"0.jpg": ["a dog"]}, name
        expected = f"2 of 3 lines contain no complete answer: '1.jpg' (ended with '{reasons[1]}'), '2.jpg' (ended with"
        assert expected in capsys.readouterr().err


def test_a_parquet_file_a_folder_of_texts_and_a_folder_with_metadata(photos: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pictures = [{"bytes": b"x" * 100, "path": file} for file in FILES]
    parquet.write_table(pyarrow.table({"image": pictures, "words": TEXTS}), tmp_path / "d.parquet")
    with pytest.raises(UsageError, match="no caption column; available columns: image, words"):
        read_caption_file(tmp_path / "d.parquet")
    parquet.write_table(pyarrow.table({"image": pictures, "text": TEXTS}), tmp_path / "c.parquet")
    texts = tmp_path / "texts"
    texts.mkdir()
    for file, text in zip(FILES, TEXTS, strict=True):
        (texts / file).with_suffix(".txt").write_text(text + "\n")
    set_ = tmp_path / "set"
    set_.mkdir()
    (set_ / "metadata.jsonl").write_text(LAYOUTS["metadata.jsonl"][1])
    for path in (tmp_path / "c.parquet", texts, set_):
        assert match_captions(read_caption_file(path), known_of(photos), "s").texts == dict(
            zip(FILES, ([text] for text in TEXTS), strict=True)
        )


def test_sheets_of_excel_and_its_text_in_utf_16(photos: Path, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["index", "image_path", "question", "answer", "prediction"])  # as VLMEvalKit writes them
    for number, (_, file, text) in enumerate(PAIRS):
        book.active.append([number, file, "Describe.", str([GT]), text])
    book.save(tmp_path / "c.xlsx")
    table = "file_name\tcaption\r\n" + "".join(f"{file}\t{text}\r\n" for _, file, text in PAIRS)
    (tmp_path / "c.txt").write_bytes(table.encode("utf-16"))
    for name in ("c.xlsx", "c.txt"):
        assert match_captions(read_caption_file(tmp_path / name), known_of(photos), "s").texts == {
            file: [text] for _, file, text in PAIRS
        }
    assert list(read_reference_file(tmp_path / "c.xlsx").texts.values()) == [[GT]] * 3
    (tmp_path / "c.xlsx").write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(UsageError, match="damaged, or not an Excel file"):
        read_caption_file(tmp_path / "c.xlsx")


def test_captions_beside_pictures_in_other_suffixes(photos: Path, tmp_path: Path) -> None:
    for suffix, form in ((".caption", "{}\n"), (".json", '{{"image": "x.jpg", "caption": "{}"}}')):
        folder = tmp_path / suffix[1:]
        folder.mkdir()
        for _, file, text in PAIRS:
            (folder / file).write_bytes((photos / file).read_bytes())
            (folder / file).with_suffix(suffix).write_text(form.format(text))
        assert match_captions(read_caption_file(folder), known_of(photos), "s").texts == {
            file: [text] for _, file, text in PAIRS
        }
    items = open_data(f"folder:{tmp_path / 'caption'}")  # as kohya's scripts write them
    assert {item.id: item.references for item in items} == {file: (text,) for _, file, text in PAIRS}


@pytest.mark.parametrize("suffix", ["avif", "jfif", "jp2", "m4v", "HEIC", "svg", "cr2"])
def test_a_suffix_of_any_picture_or_clip_marks_a_file_name(tmp_path: Path, suffix: str) -> None:
    """Also of pictures that cannot be read, because lists name them, too."""
    file = f"COCO_val2014_000000391895.{suffix}"
    for own in (file.rpartition(".")[0], "391895"):
        assert match_ids([own], KnownIds("data", [file]), "s")[0] == {own: file}
    for separator in (",", " ", "\t", ": "):
        (tmp_path / "c.txt").write_text(f"x.{suffix}{separator}a dog\ny.jpg{separator}a cat\n")
        assert read_caption_file(tmp_path / "c.txt").texts == {f"x.{suffix}": ["a dog"], "y.jpg": ["a cat"]}
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in ((f"x.{suffix}", "a dog"), ("y.jpg", "a cat")):
        (folder / name).write_bytes(b"a picture")
        (folder / name).with_suffix(".txt").write_text(text)
    assert read_caption_file(folder).texts == {"x": ["a dog"], "y": ["a cat"]}


def test_every_line_beside_a_picture_is_a_caption_and_an_empty_file_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("a dog runs\n\na small brown dog\n")
    (tmp_path / "2.txt").write_text("\n")
    assert read_caption_file(tmp_path).texts == {"1": ["a dog runs", "a small brown dog"], "2": [""]}


PROSE = (
    "The image shows a woman in a red dress who stands on a wide beach. She holds an umbrella, and behind her there is "
    "a small boat on the water."
)


@pytest.mark.parametrize("width", [40, 200], ids=["wrapped at 40 characters", "paragraphs"])
def test_prose_of_several_lines_beside_pictures_is_one_caption(tmp_path: Path, width: int) -> None:
    after = "" if width == 40 else "\n\nThe sky is grey."
    for number in range(4):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.jpg")
        (tmp_path / f"{number}.txt").write_text(textwrap.fill(PROSE, width) + after + "\n")
    (tmp_path / "0.txt").write_text("one line\n")
    (tmp_path / "1.txt").write_text("tags, in one\nand another line\n")  # a few files may be otherwise
    whole = " ".join((PROSE + after).split())
    expected = {"0": ("one line",), "1": ("tags, in one and another line",), "2": (whole,), "3": (whole,)}
    assert {Path(item.id).stem: item.references for item in open_data(str(tmp_path))} == expected
    assert {key: tuple(texts) for key, texts in read_caption_file(tmp_path).texts.items()} == expected
    lines = {item.id: item.references for item in open_data(f"folder:{tmp_path}?lines=references")}
    assert lines["1.jpg"] == ("tags, in one", "and another line") and len(lines["2.jpg"]) > 1
    with pytest.raises(UsageError, match="lines=two: expected references"):
        open_data(f"folder:{tmp_path}?lines=two")


@pytest.mark.data
def test_the_references_of_people_are_no_prose() -> None:
    references = read_reference_file(DATA / "flickr8k" / "Flickr8k.token.txt")
    assert not any(is_prose("\n".join(own)) for own in references.texts.values())
    assert lines_in("\n\n".join(own) for own in references.texts.values()) == "references"


def test_a_quote_that_is_not_closed_takes_no_other_rows(tmp_path: Path) -> None:
    for name, separator in (("c.csv", ","), ("c.tsv", "\t")):
        rows = [f"{n}.jpg{separator}a dog {n}" for n in range(5)]
        rows[1] = f'1.jpg{separator}"go away'
        (tmp_path / name).write_text(f"image{separator}caption\n" + "\n".join(rows) + "\n")
        for read in (read_caption_file, read_reference_file):
            with pytest.raises(UsageError, match="an unclosed quote"):
                read(tmp_path / name)


def test_flickr30ks_table_with_its_one_missing_bar_and_quotes_after_blanks(tmp_path: Path) -> None:
    rows = ["1.jpg| 0| Two dogs .", "1.jpg| 4   A dog runs across the grass .", '1.jpg| 5| "sit !" says a man .']
    (tmp_path / "results.csv").write_text("image_name| comment_number| comment\n" + "\n".join(rows) + "\n")
    Image.new("RGB", (3, 2)).save(tmp_path / "1.jpg")
    said = ["Two dogs .", "A dog runs across the grass .", '"sit !" says a man .']
    assert read_reference_file(tmp_path / "results.csv").texts == {"1.jpg": said}
    assert open_data(f"csv:{tmp_path / 'results.csv'}")[0].references == tuple(said)


def test_lines_are_not_those_of_data_whose_ids_are_numbers() -> None:
    known = KnownIds("the data", ["3", "1", "2"])
    with pytest.raises(UsageError, match="c: the 3 entries have no ids, but those of"):
        match_captions(CaptionFile("c.txt", {"1": ["a"], "2": ["b"], "3": ["c"]}, numbered=True), known, "c")
    with_ids = CaptionFile("c.jsonl", {"1": ["a"], "2": ["b"], "3": ["c"]})
    assert match_captions(with_ids, known, "c").how is None


def test_several_records_of_one_picture_end_the_search() -> None:
    """A looser comparison is not tried once as many records match as there are pictures."""
    files = dict.fromkeys("123", "x/a.jpg") | dict.fromkeys("45", "b.png")
    file = CaptionFile("c.jsonl", {id_: [f"text {id_}"] for id_ in files}, files)
    matched = match_captions(file, KnownIds("the data", ["x/a.jpg", "z/b.jpg"]), "c")
    assert matched.texts == {"x/a.jpg": ["text 1", "text 2", "text 3"], "4": ["text 4"], "5": ["text 5"]}
    _, how = match_ids(["a.jpg", "a.jpg", "b.jpg"], KnownIds("the data", ["a", "b", "c"]), "c")
    assert how is not None and "matched 2 of 2 captions" in how  # an id that is named twice counts once


def test_references_of_textcaps_and_of_docci(tmp_path: Path) -> None:
    texts = ["a sign that says stop", "a red stop sign"]
    records = [{"image_id": "a1", "caption_str": t, "caption_tokens": t.split(), "reference_strs": texts,
                "image_path": "train_images/a1.jpg"} for t in texts]  # fmt: skip
    (tmp_path / "textcaps.json").write_text(json.dumps({"dataset_type": "val", "data": records}))
    assert read_reference_file(tmp_path / "textcaps.json").texts == {"a1": texts}
    docci = {"split": "test", "example_id": "test_00000", "image_file": "test_00000.jpg", "description": texts[0]}
    (tmp_path / "docci.jsonlines").write_text(json.dumps(docci))
    assert read_reference_file(tmp_path / "docci.jsonlines").texts == {"test_00000.jpg": texts[:1]}


# What NumPy writes, and so pandas where it saves a column of lists that it read from Parquet.
OF_NUMPY = [
    ("['a dog'\n 'the dog']", ["a dog", "the dog"]),
    ("['a dog' \"the dog's ball\"]", ["a dog", "the dog's ball"]),
    ("[{'raw': 'a dog'} {'raw': 'the dog, again'}]", ["a dog", "the dog, again"]),
]
# Neither text nor anything that can be read.
NO_TEXT = [
    *(
        "['a dog' 'the dog', 'again']",
        "['a dog' ... 'the dog']",
        "[a dog, the dog]",
        "{'raw' 'a dog'}",
        '{"caption": "a',
    ),
    *(
        "array(['a dog'], dtype=object)",
        "[list(['a dog', 'x']) list(['y'])]",
        "{'a dog', 'the dog'}",
        "x.jpg",
        "in/x.PNG",
    ),
]


@pytest.mark.parametrize(("cell", "texts"), OF_NUMPY)
def test_cells_of_numpy_are_as_many_captions_as_they_hold(cell: str, texts: list[str], tmp_path: Path) -> None:
    """Issue: `ast.literal_eval` joined them to one caption, of which CIDEr was 0.0, with exit status 0."""
    Image.new("RGB", (3, 2)).save(tmp_path / "x.jpg")
    quoted = cell.replace('"', '""')
    (tmp_path / "c.csv").write_text(f'image,captions\nx.jpg,"{quoted}"\n')
    assert read_reference_file(tmp_path / "c.csv").texts == {"x.jpg": texts}
    assert open_data(f"{tmp_path}/c.csv")[0].references == tuple(texts)
    (tmp_path / "c.jsonl").write_text(json.dumps({"image": "x.jpg", "captions": cell}))
    assert open_data(f"{tmp_path}/c.jsonl")[0].references == tuple(texts)


def test_a_round_trip_through_pandas_gives_the_captions_again(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    texts = [["a dog", "the dog's ball"], ["a cat"], ["one, two", "[sic] three", "four"]]
    nested = [[{"raw": text} for text in of_one] for of_one in texts]
    pandas.DataFrame({"id": [7, 8, 9], "caption": texts, "sentences": nested}).to_parquet(tmp_path / "x.parquet")
    there = pandas.read_parquet(tmp_path / "x.parquet")
    for column in ("caption", "sentences"):
        there[["id", column]].to_csv(tmp_path / "y.csv", index=False)
        assert read_reference_file(tmp_path / "y.csv").texts == dict(zip("789", texts, strict=True))


@pytest.mark.parametrize("cell", NO_TEXT)
def test_what_looks_like_a_list_or_a_file_is_never_text(cell: str, tmp_path: Path) -> None:
    quoted = cell.replace('"', '""')
    for name in ("x.jpg", "y.jpg"):
        Image.new("RGB", (3, 2)).save(tmp_path / name)
    (tmp_path / "c.csv").write_text(f'image,caption\ny.jpg,a cat\nx.jpg,"{quoted}"\n')
    (tmp_path / "c.json").write_text(json.dumps([{"image": "x.jpg", "caption": cell}]))
    (tmp_path / "c.jsonl").write_text(json.dumps({"image": "x.jpg", "caption": cell}))
    for name in ("c.csv", "c.json", "c.jsonl"):
        for read in (read_caption_file, read_reference_file):  # half of the captions, or all of them
            with pytest.raises(UsageError, match=r"looks like a list or a dictionary|got the file name"):
                read(tmp_path / name)
    data = open_data(f"{tmp_path}/c.csv")  # a row of a large table is counted, and the others are read
    assert [item.id for item in data] == ["y.jpg"]
    [(where, reason)] = data.missing
    assert where.startswith(f"{tmp_path}/c.csv, line 3") and "expected " in reason


@pytest.mark.parametrize("text", ["[[[[ answer: a dog", "['a dog' ... 'x']", '{"caption": "a', "dog.jpg", "[1, 2]"])
def test_what_a_captioner_wrote_is_read_as_text(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Some captions of a file, or all of one that `tellapart caption` wrote, whose settings are beside it."""
    said = {"1": text, "2": "a cat", "3": "a bird"}
    for name, count in (("some.jsonl", 3), ("all.jsonl", 1)):
        (tmp_path / name).write_text(lines([{"id": key, "caption": said[key]} for key in list(said)[:count]]))
    assert read_caption_file(tmp_path / "some.jsonl").texts == {key: [own] for key, own in said.items()}
    assert "1 of 3 captions look like lists or file names but are used as" in (capsys.readouterr().err)
    with pytest.raises(UsageError, match=r"looks like a list|got the file name"):
        read_reference_file(tmp_path / "some.jsonl")
    with pytest.raises(UsageError, match=r"looks like a list|got the file name"):
        read_caption_file(tmp_path / "all.jsonl")
    (tmp_path / "all.jsonl.settings.json").write_text("{}")
    assert read_caption_file(tmp_path / "all.jsonl").texts == {"1": [text]}


VIZWIZ = [
    {"id": 0, "image_id": 7, "caption": "a red can", "is_rejected": False, "is_precanned": False},
    {"id": 1, "image_id": 7, "caption": "buy my pills", "is_rejected": True, "is_precanned": False},
    {"id": 2, "image_id": 7, "caption": "Quality issues are too severe to recognize visual content.",
     "is_rejected": False, "is_precanned": True},
    {"id": 3, "image_id": 8, "caption": "nothing", "is_rejected": True, "is_precanned": False},
]  # fmt: skip


@pytest.mark.parametrize("layout", ["annotations", "list", "by picture", "csv"])
def test_captions_that_vizwiz_rejects_are_ignored(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ("c.csv" if layout == "csv" else "c.json")
    images = [{"id": number, "file_name": f"VizWiz_val_{number:08}.jpg"} for number in (7, 8)]
    content: dict[str, Any] = {
        "annotations": {"images": images, "annotations": VIZWIZ},
        "list": VIZWIZ,
        "by picture": {str(n): [own for own in VIZWIZ if own["image_id"] == n] for n in (7, 8)},
    }
    rows = "".join(f"{own['image_id']},{own['caption']},{own['is_rejected']},{own['is_precanned']}\n" for own in VIZWIZ)
    path.write_text(
        f"image_id,caption,is_rejected,is_precanned\n{rows}" if layout == "csv" else json.dumps(content[layout])
    )
    for read in (read_reference_file, read_caption_file):
        assert read(path).texts == {"7": ["a red can"], "8": []}
    assert "ignoring 3 captions, as VizWiz does (is_rejected: 2, is_precanned: 1); the first is in '7'" in (
        capsys.readouterr().err
    )
    if layout == "annotations":
        for image in images:
            Image.new("RGB", (3, 2)).save(tmp_path / str(image["file_name"]))
        assert [item.references for item in open_data(f"coco:{path}")] == [("a red can",), ()]


@pytest.mark.parametrize(
    "text", ["[unk]", "[sic] a dog", "[CLS] a dog [SEP]", "(a dog)", "a {red} dog", "a sign: x.jpg"]
)
def test_brackets_in_words_are_text(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(f"id,caption\n1,{text}\n")
    assert read_caption_file(tmp_path / "c.csv").texts == {"1": [text]}


def test_lines_of_which_only_some_begin_with_a_file_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("x.jpg,a dog\na cat\n")
    with pytest.raises(UsageError, match=r"this line begins with the file name 'x\.jpg', but other lines"):
        read_caption_file(tmp_path / "c.txt")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("c.tar", "--data"),
        ("preds.pkl", r"python -c .*json.dump\(pickle.load.* \S+preds.pkl \S+preds.json$"),
        ("c.zip", "unzip "),
        ("c.xml", "XML is not supported"),
        ("c.xls", "Excel's old .xls format is not supported; save the file as"),
    ],
)
def test_files_that_hold_no_text_say_what_to_give(name: str, line: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('<?xml version="1.0"?>\n<annotations/>\n')
    with pytest.raises(UsageError, match=line):
        read_caption_file(tmp_path / name)
    if name.endswith(("zip", "pkl")):
        with pytest.raises(UsageError, match=line):
            open_data(str(tmp_path / name))


def test_compressed_files_are_read(photos: Path, tmp_path: Path) -> None:
    for layout in ("COCO annotations", "CSV", "names and tabs"):
        name, content = LAYOUTS[layout]
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        assert match_captions(read_caption_file(tmp_path / f"{name}.gz"), known_of(photos), "c").texts == {
            file: [text] for _, file, text in PAIRS
        }
    data = open_data(f"{tmp_path / 'c.json.gz'}?images={photos}")
    assert [item.references for item in data] == [(text,) for text in TEXTS]
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(b"[]" * 999)[:-9])
    with pytest.raises(UsageError, match=r"c\.json\.gz: "):
        read_caption_file(tmp_path / "c.json.gz")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    with pytest.raises(UsageError, match="gunzip"):
        open_data(str(tmp_path / "c.jsonl.gz"))


def test_of_a_record_with_both_captions_and_references_each_reader_takes_its_own(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(LAYOUTS["lmms-eval"][1])
    assert list(read_reference_file(path).texts.values()) == [[GT, "and again"]] * 3
    assert [texts for (texts,) in read_caption_file(path).texts.values()] == list(TEXTS)
    results = run_eval(EvalOptions([path], path, metrics=["bleu1"]))
    assert results.systems["samples"]["bleu1"].n == 3


def test_eval_says_how_it_matched(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(LAYOUTS["COCO results"][1])
    results = run_eval(EvalOptions([tmp_path / "c.json"], data=f"folder:{photos}", metrics=["length"]))
    how = "by the number in the file name, for example '391895' is 'COCO_val2014_000000391895.jpg'"
    assert results.notes == [f"c: matched 3 of 3 captions with the data {how}"]


def test_pictures_of_one_name_in_two_folders_are_told_apart_by_their_folder() -> None:
    known = KnownIds("the data", ["a/1.jpg", "b/1.jpg"])
    there = CaptionFile("c", {"/x/photos/a/1.jpg": ["one"], "/x/photos/b/1.jpg": ["two"]})
    assert match_captions(there, known, "c").texts == {"a/1.jpg": ["one"], "b/1.jpg": ["two"]}
    bare = CaptionFile("c", {"1.jpg": ["one"]})
    assert match_captions(bare, known, "c") == match_captions(bare, known, "c") and match_captions(
        bare, known, "c"
    ).texts == {"1.jpg": ["one"]}


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('{"id": "http://[x", "caption": "a"}', {"http://[x": ["a"]}),
        ('{"id": 1.0, "caption": ""}', {"1": [""]}),
        ('{"id": 1, "caption": "", "text": "the prompt"}', {"1": [""]}),
        ('{"id": 1, "captions": "[not a list"}', {"1": ["[not a list"]}),
        ('{"id": 1, "filtered_resps": [], "resps": [["a"]]}', {"1": ["a"]}),
        ('{"image": 391895, "caption": "a"}', {"391895": ["a"]}),
        ('{"data": {"data": {"caption": "a"}}}', {"data": ["a"]}),
    ],
)
def test_odd_records(content: str, texts: dict[str, list[str]], tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(content)
    found = read_caption_file(tmp_path / "c.json")
    assert found.texts == texts and match_captions(found, KnownIds("the data", ["x.jpg"]), "c").texts == texts


def test_lines_are_paired_by_position_with_as_many_lines_only() -> None:
    numbered = CaptionFile("c", {"1": ["one"], "2": ["two"]}, numbered=True)
    by_position = match_captions(numbered, KnownIds("the references", ["1", "2"], numbered=True), "c")
    assert by_position.texts == numbered.texts and "by position, because neither has ids" in str(by_position.how)
    with pytest.raises(UsageError, match="c has 2 entries, but the references has 3, and neither has ids"):
        match_captions(numbered, KnownIds("the references", ["1", "2", "3"], numbered=True), "c")
    for captions, known in (
        (numbered, KnownIds("the references", ["x", "y"])),
        (CaptionFile("c", {"x": ["one"], "y": ["two"]}), KnownIds("the references", ["1", "2"], numbered=True)),
    ):
        with pytest.raises(UsageError, match="do; they are not paired by position, because the order may"):
            match_captions(captions, known, "c")


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent; set TELLAPART_DATA")
def test_lines_against_ids_of_coco_are_not_scored_by_a_coincidence(tmp_path: Path) -> None:
    """Issue: with --allow-missing one coincidental id was scored, with exit status 0."""
    said = (DATA / "published" / "clipcap_coco_on_coco.txt").read_text().splitlines()[:900]
    (tmp_path / "said.txt").write_text("\n".join(said) + "\n")
    references = DATA / "annotations" / "coco_karpathy_test.json"
    with pytest.raises(UsageError, match="the 900 entries have no ids"):
        run_eval(EvalOptions([tmp_path / "said.txt"], references, metrics=["bleu1"], allow_missing=True))
    numbered = [{"image_id": number, "caption": text} for number, text in enumerate(said, 1)]
    (tmp_path / "said.json").write_text(json.dumps(numbered))
    with pytest.raises(UsageError, match="of 5,000 ids in common; are they about the same pictures"):
        run_eval(EvalOptions([tmp_path / "said.json"], references, metrics=["bleu1"], allow_missing=True))


# The same names, with pictures, as data to train on and to measure with.


@pytest.mark.parametrize(
    "layout", ["image and text", "LLaVA's training", "chats", "COCO annotations", "metadata.jsonl"]
)
def test_data_sets_know_the_same_names(layout: str, photos: Path, tmp_path: Path) -> None:
    name, content = LAYOUTS[layout]
    (tmp_path / name).write_text(content)
    for folder in ("photos", "coco/val2014", "images", "."):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for file in FILES:
            (tmp_path / folder / file).write_bytes((photos / file).read_bytes())
    items = {Path(item.picture.name).name: item.references for item in open_data(str(tmp_path / name))}
    assert items == {file: (text,) for file, text in zip(FILES, TEXTS, strict=True)}


def test_a_folder_of_pictures_takes_its_references_from_hugging_faces_metadata(photos: Path, tmp_path: Path) -> None:
    for file in FILES:
        (tmp_path / file).write_bytes((photos / file).read_bytes())
    (tmp_path / "metadata.jsonl").write_text(LAYOUTS["metadata.jsonl"][1])
    assert {item.id: item.references for item in open_data(str(tmp_path))} == {
        file: (text,) for file, text in zip(FILES, TEXTS, strict=True)
    }


def test_every_folder_below_may_have_its_own_metadata(photos: Path, tmp_path: Path) -> None:
    """Issue: the lists of ``train/`` and ``test/`` were passed over, and their captions lost without a word."""
    for folder, file in zip(("train", "test/a", "test"), FILES, strict=True):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / file).write_bytes((photos / file).read_bytes())
    (tmp_path / "train" / "metadata.jsonl").write_text(
        lines([{"id": 0, "image_file_name": f"./{FILES[0]}", "text": TEXTS[0]}, {"file_name": "gone.jpg", "text": GT}])
    )
    (tmp_path / "test" / "metadata.csv").write_text(
        f'id,file_name,text\n0,a\\{FILES[1]},{TEXTS[1]}\n1,./{FILES[2]},"{TEXTS[2]}"\n'
    )
    wanted = {f"train/{FILES[0]}": TEXTS[0], f"test/a/{FILES[1]}": TEXTS[1], f"test/{FILES[2]}": TEXTS[2]}
    data = open_data(str(tmp_path))
    assert {item.id: item.references for item in data} == {id_: (text,) for id_, text in wanted.items()}
    assert list(data.missing) == [(str(tmp_path / "train" / "gone.jpg"), "no such file")]
    (tmp_path / "train" / "metadata.jsonl").write_text(lines([{"file_name": FILES[0], "text": TEXTS[0]}]))
    known = KnownIds("the data", list(wanted))
    assert match_captions(read_reference_file(tmp_path), known, "r").texts == {i: [t] for i, t in wanted.items()}


def test_a_folder_of_archives_says_how_to_unpack_them(tmp_path: Path) -> None:
    (tmp_path / "train.zip").write_bytes(b"PK")
    (tmp_path / "metadata.jsonl").write_text(LAYOUTS["metadata.jsonl"][1])
    with pytest.raises(UsageError, match=r"train\.zip \(an archive; run: unzip -d "):
        open_data(str(tmp_path))


def test_records_of_one_id_in_a_json_list_are_one_picture(photos: Path, tmp_path: Path) -> None:
    records = [{"image": str(photos / FILES[0]), "id": "1", "caption": text} for text in TEXTS]
    (tmp_path / "d.json").write_text(json.dumps(records))
    [item] = open_data(str(tmp_path / "d.json"))
    assert item.references == TEXTS
    (tmp_path / "d.json").write_text(json.dumps([records[0], {**records[0], "image": str(photos / FILES[1])}]))
    with pytest.raises(UsageError, match="have the same id '1'"):
        open_data(str(tmp_path / "d.json"))


def test_an_empty_tab_separated_file_has_tabs() -> None:
    assert [separator_of(line, Path("c.tsv")) for line in ("", "\n", "a\tb", "a,b")] == ["\t", "\t", "\t", ","]
