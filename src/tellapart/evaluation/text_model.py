"""What the text models of evaluation share: the name and the hash of the weights that a signature states."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any


class HashedModel:
    """A model of transformers with its tokenizer and the name that it was loaded by."""

    model: Any
    tokenizer: Any
    name: str

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all weights and of the vocabulary."""
        from tellapart.scorers.base import weights_fingerprint

        return weights_fingerprint(self.model, SimpleNamespace(to_dict=self.tokenizer.get_vocab))

    @property
    def name_and_hash(self) -> str:
        """The last part of the name and eight digits of the hash, such as ``gpt2@1a2b3c4d``."""
        return f"{str(self.name).rstrip('/').split('/')[-1]}@{self.fingerprint[:8]}"
