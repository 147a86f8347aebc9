"""Learners of `replication.price`, small enough that 25 cells take minutes: a retriever and a captioner.

Both use frozen features of the shipped captioner's vision encoder and start from random weights. They are trained with
the package's own losses: CLIP's symmetric cross-entropy, and maximum likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tellapart.captioners import load_captioner
from tellapart.features.store import FeatureStore
from tellapart.objectives.contrastive import symmetric_loss
from tellapart.objectives.mle import mle_loss
from tellapart.scenes.world import Scene, Scenes
from tellapart.types import pad_rows

STEPS, BATCH, RATE = 250, 100, 4e-3
WIDTH = 96  # hidden units
LONGEST = 24  # maximum number of words of a generated caption
PAD, START, END = 0, 1, 2


@dataclass(frozen=True)
class Pictures:
    """Training and test pictures, the features of their K cells, and the look-alikes that the listener chooses among.

    families: for each test picture, the picture itself and the other members of its family.
    """

    train: Sequence[Scene]
    test: Sequence[Scene]
    train_NKD: torch.Tensor
    test_NKD: torch.Tensor
    families: Sequence[Sequence[Scene]]

    @classmethod
    def load(cls, train: Sequence[Scene], test: Sequence[Scene]) -> Pictures:
        """Encodes the pictures; standardizes features by the training pictures."""
        encoder, store = load_captioner("scenes", "cpu", "fp32").encoder, FeatureStore()
        rows = [store.features([scene.item() for scene in part], encoder) for part in (train, test)]
        train_NKD, test_NKD = (torch.from_numpy(np.asarray(one, dtype=np.float32)) for one in rows)
        mean_D, deviation_D = train_NKD.mean((0, 1)), train_NKD.std((0, 1)) + 1e-3
        world = Scenes(10**9, seed=31, split="test", references=0)
        families = [[scene, *(one for one in world.family_of(scene.family) if one.id != scene.id)] for scene in test]
        return cls(train, test, (train_NKD - mean_D) / deviation_D, (test_NKD - mean_D) / deviation_D, families)


class Words:
    """Word-level tokenizer with the vocabulary of the training captions and the test queries."""

    def __init__(self, *texts: Sequence[str]) -> None:
        words = sorted({word for some in texts for text in some for word in text.split()})
        self.words = ["", "", "", *words]
        self.number = {word: place for place, word in enumerate(words, 3)}

    def __len__(self) -> int:
        return len(self.words)

    def rows(self, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns padded tokens N×T including the end token, and a mask of valid tokens."""
        return pad_rows([[*(self.number[word] for word in text.split()), END] for text in texts], PAD)

    def text(self, row: Sequence[int]) -> str:
        """Returns the words before the end token."""
        kept = row[: row.index(END)] if END in row else row
        return " ".join(self.words[number] for number in kept if number > END)


class Cells(nn.Module):
    """A layer shared by all cells of a picture, plus a position embedding per cell: B×K×D to B×K×H."""

    def __init__(self, pictures: Pictures) -> None:
        super().__init__()
        _, cells, width = pictures.train_NKD.shape
        self.layer, self.place_KH = nn.Linear(width, WIDTH), nn.Parameter(0.1 * torch.randn(cells, WIDTH))

    def forward(self, visual_BKD: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.layer(visual_BKD) + self.place_KH)


class Retriever(nn.Module):
    """A text encoder (GRU, mean over states) and a picture encoder (mean over cells) with a shared embedding space."""

    def __init__(self, words: Words, pictures: Pictures) -> None:
        super().__init__()
        self.words, self.pictures = words, pictures
        self.embedding, self.gru = nn.Embedding(len(words), WIDTH // 2), nn.GRU(WIDTH // 2, WIDTH, batch_first=True)
        self.cells, self.image = Cells(pictures), nn.Linear(WIDTH, WIDTH)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def texts(self, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Returns normalized features R×D."""
        states_RTH = self.gru(self.embedding(tokens_RT))[0] * valid_RT[..., None]
        return F.normalize(states_RTH.sum(1) / valid_RT.sum(1, keepdim=True), dim=-1)

    def images(self, visual_BKD: torch.Tensor) -> torch.Tensor:
        """Returns normalized features B×D."""
        return F.normalize(self.image(self.cells(visual_BKD).mean(1)), dim=-1)

    @torch.no_grad()
    def hits(self, queries: Sequence[str]) -> np.ndarray:
        """Returns N values: 1 if the query of a test picture ranks it first among all test pictures, otherwise 0."""
        match_NN = self.texts(*self.words.rows(queries)) @ self.images(self.pictures.test_NKD).T
        return (match_NN.argmax(1) == torch.arange(len(queries))).double().numpy()


class Writer(nn.Module):
    """A captioner: a GRU whose states attend to the cells of the picture."""

    def __init__(self, words: Words, pictures: Pictures) -> None:
        super().__init__()
        self.words, self.pictures = words, pictures
        self.embedding, self.gru = nn.Embedding(len(words), WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.cells, self.asked = Cells(pictures), nn.Linear(WIDTH, WIDTH)
        self.joined, self.head = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, len(words))

    def logits(
        self, cells_BKH: torch.Tensor, before_BT: torch.Tensor, state_1BH: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns logits B×T×V of the next words, and the state after the last word."""
        states_BTH, last_1BH = self.gru(self.embedding(before_BT), state_1BH)
        weight_BTK = (self.asked(states_BTH) @ cells_BKH.transpose(1, 2)).softmax(-1)
        joined_BTH = F.gelu(self.joined(torch.cat([states_BTH, weight_BTK @ cells_BKH], dim=-1)))
        return self.head(joined_BTH), last_1BH

    @torch.no_grad()
    def write(self, temperature: float, seed: int) -> list[str]:
        """Captions the test pictures by sampling, or greedily at temperature 0."""
        generator = torch.Generator().manual_seed(seed)
        cells_NKH = self.cells(self.pictures.test_NKD)
        state_1NH, last_N1 = cells_NKH.mean(1)[None], torch.full((len(cells_NKH), 1), START)
        written: list[torch.Tensor] = []
        for _ in range(LONGEST):
            logits_N1V, state_1NH = self.logits(cells_NKH, last_N1, state_1NH)
            if temperature:
                share_NV = (logits_N1V[:, 0] / temperature).softmax(-1)
                last_N1 = torch.multinomial(share_NV, 1, generator=generator)
            else:
                last_N1 = logits_N1V[:, 0].argmax(-1, keepdim=True)
            written.append(last_N1)
        return [self.words.text(row) for row in torch.cat(written, 1).tolist()]


def train_retriever(
    captions: Sequence[str], queries: Sequence[str], pictures: Pictures, seed: int, steps: int
) -> Retriever:
    """Trains a retriever on one caption of each training picture."""
    torch.manual_seed(seed)
    words = Words(captions, queries)
    model, (tokens_NT, valid_NT) = Retriever(words, pictures), words.rows(captions)

    def loss(rows_B: torch.Tensor) -> torch.Tensor:
        images_BD = model.images(pictures.train_NKD[rows_B])
        return symmetric_loss(model.log_scale.exp() * model.texts(tokens_NT[rows_B], valid_NT[rows_B]) @ images_BD.T)

    _descend(model, loss, len(captions), steps)
    return model


def train_captioner(captions: Sequence[str], pictures: Pictures, seed: int, steps: int) -> Writer:
    """Trains a captioner on one caption of each training picture."""
    torch.manual_seed(seed)
    words = Words(captions)
    model, (tokens_NT, valid_NT) = Writer(words, pictures), words.rows(captions)
    before_NT = F.pad(tokens_NT[:, :-1], (1, 0), value=START)

    def loss(rows_B: torch.Tensor) -> torch.Tensor:
        cells_BKH = model.cells(pictures.train_NKD[rows_B])
        logits_BTV, _ = model.logits(cells_BKH, before_NT[rows_B], cells_BKH.mean(1)[None])
        return mle_loss(logits_BTV, tokens_NT[rows_B], valid_NT[rows_B])

    _descend(model, loss, len(captions), steps)
    return model


def _descend(model: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor], count: int, steps: int) -> None:
    """Takes steps of AdamW with a one-cycle rate on shuffled batches of rows."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps + 1, pct_start=0.1)
    order_N = torch.randperm(count)
    size, at = min(BATCH, count), 0
    for _ in range(steps):
        if at + size > count:
            order_N, at = torch.randperm(count), 0
        optimizer.zero_grad()
        loss(order_N[at : at + size]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        at += size
