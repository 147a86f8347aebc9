"""The names that other programs import."""

from __future__ import annotations

import importlib

import pytest

NAMES = {
    "tellapart": "load_captioner load_scorer open_data evaluate",
    "tellapart.objectives": "smile_loss smile_head_loss",
    "tellapart.metrics": "ptb_tokenize bleu rouge_l meteor cider_d",
    "tellapart.bags": "mine_bags curate_bags",
    "tellapart.scenes": "Scenes",
    "tellapart.captioners": "load_captioner",
    "tellapart.scorers": "load_scorer",
    "tellapart.data": "open_data",
    "tellapart.compat": "pycocoevalcap",
}


@pytest.mark.parametrize("module", NAMES)
def test_public_names_are_where_programs_import_them(module: str) -> None:
    package = importlib.import_module(module)
    if module == "tellapart.compat":
        importlib.import_module("tellapart.compat.pycocoevalcap")
    for name in NAMES[module].split():
        assert getattr(package, name), name
        assert module == "tellapart.compat" or name in dir(package)
