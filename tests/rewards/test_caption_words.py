"""Content words of real captions, and the tokens that write them, whatever the tokenizer cuts them into."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tellapart.language.removed_claim import neutral, without
from tellapart.language.token_spans import token_spans
from tellapart.language.token_words import NO_WORD, words_of_tokens
from tellapart.language.words import content_words, tagged_words
from tellapart.models.word_tokenizer import word_tokenizer
from tellapart.types import Rollout

CAPTIONS = [
    "A picture of two brown dogs running across the field, near a café's sign.",
    "In the foreground, a weather-beaten fishing boat — painted turquoise & white — leans against the pier; behind it, "
    "a man in a navy-blue T-shirt (number 23!) mends his net while three seagulls, wings half-open, wait for scraps. "
    "The sky is grey, it's raining lightly, and the words “Bäckerei Müller” glow above a door; nobody's looking.",
    "naïve 日本の猫 🐈‍⬛ on a sofa…",
    "a star to the left of a heart",
    "",
    "!?",
]


def bpe() -> Any:
    """A byte-level BPE as GPT-2's, with so few merges that it cuts common words, and letters that are not ASCII."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"])
    tokenizer.train_from_iterator(CAPTIONS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>")


def wordpiece(folder: Any) -> Any:
    """BERT's tokenizer with a small vocabulary: pieces, punctuation apart."""
    from transformers import BertTokenizer

    letters = sorted({letter for text in CAPTIONS for letter in text.lower() if not letter.isspace()})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "run", "##ning", "field", "##s", "red"]
    (folder / "vocab.txt").write_text("\n".join([*pieces, *letters, *(f"##{letter}" for letter in letters)]))
    return BertTokenizer(str(folder / "vocab.txt"))


def rollout_of(tokenizer: Any, texts: list[str]) -> Rollout:
    """As a captioner gives it: texts are decoded from the tokens, the end stands after them."""
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    rows = [[*tokenizer(text, add_special_tokens=False)["input_ids"], end] for text in texts]
    width = max(map(len, rows))
    tokens_RT = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
    valid_RT = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    decoded = [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]
    return Rollout(tokens_RT, valid_RT, decoded)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "words"])
def test_every_word_belongs_to_the_tokens_that_write_it(kind: str, tmp_path: Any) -> None:
    """The tokens of a word decode to it, and no token of another word does; references of more than sixty tokens."""
    tokenizer = {"bpe": bpe, "wordpiece": lambda: wordpiece(tmp_path), "words": lambda: word_tokenizer(CAPTIONS)}[
        kind
    ]()
    told = rollout_of(tokenizer, CAPTIONS)
    assert int(told.valid_RT.sum(1).max()) > (60 if kind != "words" else 40)
    found, word_RT = words_of_tokens(told, tokenizer, content_words)
    assert sum(map(len, found)) > 30
    for r, (text, words) in enumerate(zip(told.texts, found, strict=True)):
        for number, word in enumerate(words):
            own = told.tokens_RT[r][word_RT[r] == number].tolist()
            written = tokenizer.decode(own, skip_special_tokens=True).replace(" ", "")
            assert text[word.start : word.end].replace(" ", "") in written, (text, word)
            assert len(written) <= word.end - word.start + 2, "little more than the word: a space, a quote"
        assert (word_RT[r][~told.valid_RT[r]] == NO_WORD).all() and word_RT[r][
            int(told.valid_RT[r].sum()) - 1
        ] == NO_WORD


def test_letters_of_several_tokens_are_not_lost() -> None:
    tokenizer = bpe()
    told = rollout_of(tokenizer, ["naïve 日本の猫"])
    (spans,) = token_spans([told.tokens_RT[0].tolist()], told.texts, tokenizer)
    assert (
        len(spans) > len("naïve 日本の猫") and spans[0][0] == 0 and max(end for _, end in spans) == len(told.texts[0])
    )
    assert any(start == end for start, end in spans), "a token in the middle of a letter writes nothing"
    found, word_RT = words_of_tokens(told, tokenizer, content_words)
    assert [told.texts[0][word.start : word.end] for word in found[0]] == ["naïve", "日本の猫"]
    of_no_word = [told.tokens_RT[0, t].item() for t in (word_RT[0, :-1] == NO_WORD).nonzero()]
    assert tokenizer.decode(of_no_word).strip() == "", "the bytes of a letter belong to its word; a space to none"


def kinds(caption: str, words: Any = content_words) -> dict[str, str]:
    return {caption[word.start : word.end]: word.kind for word in words(caption)}


def test_content_words_and_their_kinds() -> None:
    assert kinds("a big red star on the green grass") == {
        "big": "modifier",
        "red": "modifier",
        "star": "head",
        "green": "modifier",
        "grass": "head",
    }
    assert kinds(CAPTIONS[0]) == {
        "two": "modifier",
        "brown": "modifier",
        "dogs": "head",
        "running": "verb",
        "across": "relation",
        "field": "head",
        "near": "relation",
        "café's": "modifier",
        "sign": "head",
    }
    assert kinds("a star sits behind a heart")["sits"] == "verb"
    assert "photo" not in kinds("A photo of it's what they have there") and not content_words("")


def test_a_tagger_knows_more() -> None:
    pytest.importorskip("HanTa")
    assert kinds("an orange umbrella leans to the wall", tagged_words)["leans"] == "verb"
    assert kinds(CAPTIONS[0], tagged_words)["running"] == "verb" and "picture" not in kinds(CAPTIONS[0], tagged_words)
    text = CAPTIONS[1]
    assert [text[w.start : w.end] for w in tagged_words(text)][:3] == ["foreground", "weather-beaten", "fishing"]


def test_a_neutral_word_takes_the_claim_out() -> None:
    caption = "a big red star behind a dog running on grass"
    changed = {caption[word.start : word.end]: neutral(caption, word) for word in content_words(caption)}
    assert changed["red"] == "a big star behind a dog running on grass"
    assert changed["star"] == "a big red thing behind a dog running on grass"
    assert changed["behind"] == "a big red star and a dog running on grass"
    assert changed["running"] == "a big red star behind a dog on grass"
    assert without(caption, content_words(caption)[2]) == "a big red behind a dog running on grass"


class Bytes:
    """A tokenizer of bytes, in which a space and the first byte of a letter are one token."""

    pieces = (b"a", b" \xc3", b"\xb1", b"u", b" sits")

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return [b"".join(self.pieces[token] for token in row).decode("utf-8", "replace") for row in rows]


def test_a_token_of_a_space_and_the_first_byte_of_a_letter_belongs_to_the_word() -> None:
    (spans,) = token_spans([[0, 1, 2, 3, 4]], ["a ñu sits"], Bytes())
    assert spans == [(0, 1), (1, 3), (2, 3), (3, 4), (4, 9)]
