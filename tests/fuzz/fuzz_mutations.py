"""How a valid command is damaged: its arguments, and the content and the kind of the files that it names."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

DIGITS = "9" * 5000
DEEP = "[" * 100_000
RAW = ("1e999", "-1e999", "NaN", DIGITS, DEEP, "-0", "1e-320", '"' + "x" * 3000 + '"', '"\\ud800"', "tru", "{}{}")
HOSTILE = (
    "", " ", "-", "--", "-1", "0", "1", "2", "3", "1.5", "nan", "inf", "-inf", "1e999", "1e-320", DIGITS, "0x10", "١",
    "a\0b", "\x1b[31mred", "\ud800", "\udcff\udcfe", "\u202e", "x" * 300, "x/" * 3000, ".", "..", "~", "~nobody/x",
    "{0..99999999999}.tar", "shard-{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}.tar", "{{{{", "{" * 5000, "[a",
    "**", "*", "?", "a?b=c", "a?split=x&split=y", "scenes:", "scenes:nope", "scenes:plain?n=0", "scenes:plain?n=-1",
    "scenes:plain?n=2&detail=inf", "scenes:plain?n=2&detail=1e308", "scenes:plain?part=2/1", "scenes:plain?part=0/0",
    f"scenes:plain?n={DIGITS}", f"scenes:plain?n=2&seed={DIGITS}", f"scenes:plain?n=2&part=1/{DIGITS}",
    f"scenes:plain?n=2&limit={DIGITS}", "coco:", "hf:", "folder:", "csv:a\0b", "scenes", "scripted:error=nan",
    "scripted:seed=1e300", "openai:m@http://[::1", "openai:m@http://x:99999999/v1", ",", ",,", "a,b", "%s%n", "{}",
    "{0}", "[bold]", "[/]", "None", "true", "[]", "'", '"', "=", "a=", "=a", "a.b.c=1", "seed", "config.json",
    "first", "mean", "random", "references", "length", "cider", "spice", "meteor", "truncate", "sentences",
)  # fmt: skip
SETTINGS = (
    "seed", "name", "data.train", "data.validation", "data.test", "captioner.name", "captioner.visual",
    "captioner.frames", "captioner.prompt", "captioner.new", "captioner.new.width", "captioner.new.heads",
    "captioner.new.layers", "scorer", "captioner.new.prefix_length", "captioner.new.dropout", "scorer.name",
    "scorer.new", "scorer.new.width", "scorer.new.text_heads", "scorer.new.image_size", "scorer.new.text_width",
    "scorer.new.projection", "scorer.new.text_layers", "objective.kind", "objective.kl", "objective.decoding",
    "objective.decoding.samples", "objective.decoding.temperature", "objective.decoding.max_tokens",
    "objective.baseline", "objective.reward", "objective.rewards", "objective.entropy", "objective.mle_weight",
    "objective.label_smoothing", "training.steps", "training.batch_size", "training.learning_rate",
    "training.weight_decay", "training.warmup", "training.max_grad_norm", "training.schedule",
    "training.gradient_accumulation_steps",
    "training.parts", "training.lora", "training.lora.rank", "training.bags", "training.checkpoint_every",
    "training.log_every", "training.precision", "training.trackers", "training.word_dropout", "training.sampler",
    "training.max_tokens", "validation.every", "validation.select", "validation.decoding.beams", "validation.n",
    "evaluation.lookalike", "evaluation.gallery", "evaluation.metrics", "evaluation.eval_scorers",
    "bags.size", "bags.file", "bags.kind",
)  # fmt: skip
NUMBERS = ("0", "1", "2", "3", "5", "0.5", "1.0", "-1", "0.0", "1e-9", "1e300", "inf", "nan", "99999999999999999999")
VALUES = (
    "0", "1", "2", "3", "5", "7", "-1", "0.5", "1e-9", "1e300", "inf", "-inf", "nan", "true", "false", '""', '"x"',
    "[]", "{}", "[1, 2]", '["x"]', '{ kind = "x" }', '{ kind = "sample" }', DIGITS, "1" * 300, "99999999999999999999",
    '"cells"', '"pixels"', '"tokens"', '"bags"', '"a\\u0000b"', '"\\u001b[31m"', '"tiny.toml"', '"other.toml"',
    '"mle"', '"smile"', '"reinforce"', '"contrastive"', '"cosine"', '"linear"', '"greedy"', '"recall"', '"loss"',
    '"cider"', '"subprocess:check_output"', '"scenes:plain?n=0"', '"scenes:video?n=3"', '"data.jsonl"', '"bf16"',
    '"fp16"', '"bags.jsonl"', '"2.json"', '"scenes"', "}", "[[[[", "[" * 5000, "1979-05-27", "1979-05-27T07:32:00Z",
    '"\\ud800"',
)  # fmt: skip

Change = Callable[[random.Random, Path], None]


# Arguments
def mutate_arguments(chance: random.Random, arguments: list[str]) -> list[str]:
    """One change: a value replaced, dropped, doubled or exchanged, or a word put between."""
    changed, place = list(arguments), chance.randrange(1, max(2, len(arguments)))
    how = chance.choice(("replace", "replace", "replace", "drop", "double", "swap", "insert", "join", "option"))
    if place >= len(changed):
        return [*changed, chance.choice(HOSTILE)]
    if how == "replace":
        changed[place] = chance.choice(HOSTILE)
    elif how == "drop":
        del changed[place]
    elif how == "double":
        changed.insert(place, changed[place])
    elif how == "swap":
        other = chance.randrange(1, len(changed))
        changed[place], changed[other] = changed[other], changed[place]
    elif how == "insert":
        changed.insert(place, chance.choice(HOSTILE))
    elif how == "join":
        changed[place] += chance.choice(("?", "&", ":", ",", "/", "=", "")) + chance.choice(HOSTILE)
    else:
        changed[place:place] = ["--" + chance.choice(("json", "seed", "out", "x", "debu", "set", "data", "limit"))]
    return changed


def setting(chance: random.Random) -> list[str]:
    """A recipe's key with a value that may not belong there."""
    return ["--set", f"{chance.choice(SETTINGS)}={value(chance)}"]


def value(chance: random.Random) -> str:
    """A value of a recipe: a number as often as anything else, for most keys want one."""
    return chance.choice(NUMBERS if chance.random() < 0.5 else VALUES)


# Files
def damage(chance: random.Random, path: Path, others: list[Path]) -> str:
    """Damage one file (of a folder, one of its files); says how."""
    if path.is_dir() and not path.is_symlink():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        if not files or chance.random() < 0.05:
            shutil.rmtree(path)
            return f"{path.name} removed"
        path = chance.choice(files)
    if not path.is_file():
        return f"{path.name} is missing"
    by_form = {".json": _in_json, ".jsonl": _in_json_lines, ".toml": _in_toml, ".npy": _in_header}
    changes: list[Change] = [_bytes, _text, _kind, lambda r, p: _other(r, p, others)]
    if path.suffix in by_form:
        changes += [by_form[path.suffix]] * 6
    change = chance.choice(changes)
    change(chance, path)
    return f"{path.name}: {change.__name__}"


INSERTED = (b"\0", b"\xff\xfe", b"\n\n", b'"', b",", b"\t", b"\x1b[31m", b"{", bytes(range(256)))


def _bytes(chance: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    how = chance.choice(("flip", "cut", "zero", "double", "empty", "insert", "remove"))
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 8, 200)))
    if how == "flip" and data:
        for _ in range(chance.choice((1, 5, 50))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "zero":
        data[at:end] = bytes(end - at)
    elif how == "double":
        data *= 2
    elif how == "empty":
        data.clear()
    elif how == "insert":
        data[at:at] = chance.choice(INSERTED)
    else:
        del data[at:end]
    path.write_bytes(data)


def _text(chance: random.Random, path: Path) -> None:
    data = path.read_bytes()
    text = data.decode("utf-8", "replace")
    choices: list[bytes] = [
        text.encode("utf-16"),
        b"\xef\xbb\xbf" + data,
        data.replace(b"\n", b"\r\n"),
        data.replace(b"\n", b"\r"),
        data.replace(b",", b";"),
        data.replace(b"0.png", b"../../../etc/passwd"),
        data.replace(b"0.png", b"\xff\xfe.png"),
        data.replace(b"0", b"9" * 5000),
        data.replace(b" ", b"\t"),
        b" \n\t\n",
        DEEP.encode(),
        data + b"\n" + data,
        data[::-1],
    ]
    path.write_bytes(chance.choice(choices))


def _kind(chance: random.Random, path: Path) -> None:
    """Another kind of thing under the same name."""
    path.unlink()
    how = chance.choice(("folder", "loop", "gone", "null", "dangling"))
    if how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "null":
        path.symlink_to("/dev/null")
    elif how == "dangling":
        path.symlink_to("nowhere")


def _other(chance: random.Random, path: Path, others: list[Path]) -> None:
    """The content of another file: a layout that was not expected here."""
    files = [other for other in others if other.is_file()]
    path.write_bytes(chance.choice(files).read_bytes())


# Structured content
_RAW = "RAW-{}-WAR"


def _in_json(chance: random.Random, path: Path) -> None:
    path.write_bytes(_changed_json(chance, path.read_text(encoding="utf-8", errors="replace")))


def _in_json_lines(chance: random.Random, path: Path) -> None:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    place = chance.randrange(max(1, len(lines) - 1))
    encoded = [line.encode("utf-8", "surrogateescape") for line in lines]
    encoded[place] = _changed_json(chance, lines[place])
    path.write_bytes(b"\n".join(encoded))


def _changed_json(chance: random.Random, text: str) -> bytes:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text.encode("utf-8", "replace")
    places = _places(value, ())
    place = chance.choice(places)
    raws: list[Any] = [_RAW.format(number) for number in range(len(RAW))]
    plain: list[Any] = [None, True, -1, 0, 1.5, 10**30, "", "\0", "\x1b[31m", "..", [], {}, [[]], {"a": {}}, ["x"]]
    new = chance.choice([*plain, *raws])
    value = _replaced(value, place, new, chance)
    told = json.dumps(value)
    for number, raw in enumerate(RAW):
        told = told.replace(json.dumps(_RAW.format(number)), raw)
    return told.encode("utf-8", "surrogatepass")


def _places(value: Any, place: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, one in list(inner)[:50] for found in _places(one, (*place, key)))]


def _replaced(value: Any, place: tuple[Any, ...], new: Any, chance: random.Random) -> Any:
    if not place:
        return new
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    how = chance.random()
    if how < 0.7:
        inner[place[-1]] = new
    elif how < 0.85:
        del inner[place[-1]]
    elif isinstance(inner, list):
        inner.append(inner[place[-1]])
    else:
        inner[chance.choice(("", "x", "id", "image", "caption"))] = new
    return value


def _in_header(chance: random.Random, path: Path) -> None:
    """Another type, order or shape in the header of a .npy file, or a header that is none."""
    data = path.read_bytes()
    length = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + length].decode("latin-1").rstrip()
    shape = re.search(r"\([^()]*\)", header)
    old = [
        ("'<f4'", "'|O'"),
        ("'<f4'", "'<f2'"),
        ("'<f4'", "'<U4'"),
        ("False", "True"),
        ("descr", "x"),
        ("}", ""),
        ("{", "["),
    ]
    if shape:
        old += [(shape[0], new) for new in ("()", "(0, 4)", "(-1, 4)", "(1.5,)", f"({DIGITS},)", "(2**60, 4)", "None")]
    wrong, right = chance.choice(old)
    new = header.replace(wrong, right).encode("latin-1")
    path.write_bytes(data[:8] + (len(new) & 0xFFFF).to_bytes(2, "little") + new + data[10 + length :])


def _in_toml(chance: random.Random, path: Path) -> None:
    """A key of a recipe gets another value, or another key."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    places = [number for number, line in enumerate(lines) if "=" in line and not line.startswith("[")]
    if not places:
        return
    place = chance.choice(places)
    key = lines[place].partition("=")[0]
    how = chance.random()
    if how < 0.6:
        lines[place] = f"{key}= {value(chance)}"
    elif how < 0.75:
        del lines[place]
    elif how < 0.9:
        table, _, name = chance.choice(SETTINGS).rpartition(".")
        lines += [f"[{table}]"] * bool(table) + [f"{name} = {value(chance)}"]
    else:
        lines[place] = f'"\\u001b[31m{key.strip()}" = 1'
    path.write_bytes("\n".join(lines).encode("utf-8", "replace"))
