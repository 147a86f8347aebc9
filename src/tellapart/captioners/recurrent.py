"""Paper 4's captioner: picture features and an LSTM, optionally with attention (Anderson et al. 2018).

A picture is represented by one or several vectors (grid cells, detected regions, frames of a clip). Without attention,
the LSTM starts from the mean vector, which a linear layer projects to the LSTM's width (section 4.3 of the paper). With
attention, the LSTM also attends to all vectors at every word, like the Top-Down captioner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from tellapart.captioners.captioner import PartsCaptioner
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.captioners.teacher_forcing import hidden_cached
from tellapart.models.saved import load_whole
from tellapart.models.vision import cells_of, config_of, pooled_of

State = tuple[torch.Tensor, ...]  # LSTM states, each R×H


@strict
class RecurrentConfig(PreTrainedConfig):
    """Configuration of a recurrent captioner. The default widths follow paper 4.

    vision_config: any vision encoder from transformers. None: features of size ``visual_size`` come from files.
    attention: whether to attend to all grid cells or regions at each word, instead of using their mean once.
    """

    model_type = "recurrent_captioner"

    vision_config: Any = None
    visual_size: int = 2048
    attention: bool = False
    vocab_size: int = 10000
    hidden_size: int = 512
    dropout: float = 0.5

    def __post_init__(self, **kwargs: Any) -> None:
        self.vision_config = config_of(self.vision_config) if self.vision_config else None
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]


class PooledDecoder(nn.Module):
    """An LSTM whose initial hidden state is the mean of the picture's vectors (paper 4, section 4.3)."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        H = config.hidden_size
        self.embed, self.lstm = nn.Embedding(config.vocab_size, H), nn.LSTM(H, H, batch_first=True)
        self.dropout, self.head = nn.Dropout(config.dropout), nn.Linear(H, config.vocab_size)

    def start(self, values_RPH: torch.Tensor, there_RP: torch.Tensor) -> State:
        h_RH = mean_of(values_RPH, there_RP)
        return h_RH, torch.zeros_like(h_RH)

    def forward(
        self, tokens_RT: torch.Tensor, state: State, values_RPH: torch.Tensor, there_RP: torch.Tensor
    ) -> tuple[torch.Tensor, State]:
        """Returns hidden_RTH after each token, and the state after the last one."""
        h_RH, c_RH = state
        words_RTH = self.dropout(self.embed(tokens_RT))
        hidden_RTH, (h_1RH, c_1RH) = self.lstm(words_RTH, (h_RH[None].contiguous(), c_RH[None].contiguous()))
        return self.dropout(hidden_RTH), (h_1RH[0], c_1RH[0])


class AttentionDecoder(nn.Module):
    """Top-Down (Anderson et al. 2018, section 3.2): one LSTM attends to regions, another LSTM predicts the next word.

    The initial hidden state of the first LSTM is the mean of the regions, as in `PooledDecoder`.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        H = config.hidden_size
        self.embed = nn.Embedding(config.vocab_size, H)
        self.looking, self.saying = nn.LSTMCell(3 * H, H), nn.LSTMCell(2 * H, H)
        self.key, self.query, self.weight = nn.Linear(H, H), nn.Linear(H, H, bias=False), nn.Linear(H, 1, bias=False)
        self.dropout, self.head = nn.Dropout(config.dropout), nn.Linear(H, config.vocab_size)

    def start(self, values_RPH: torch.Tensor, there_RP: torch.Tensor) -> State:
        """Returns h and c of the first and of the second LSTM, R×H each, and the regions' keys R×P×H, which never
        change.
        """
        mean_RH = mean_of(values_RPH, there_RP)
        none_RH = torch.zeros_like(mean_RH)
        return mean_RH, none_RH, none_RH, none_RH, self.key(values_RPH)

    def forward(
        self, tokens_RT: torch.Tensor, state: State, values_RPH: torch.Tensor, there_RP: torch.Tensor
    ) -> tuple[torch.Tensor, State]:
        """Returns hidden_RTH after each token, and the state after the last one."""
        h1_RH, c1_RH, h2_RH, c2_RH, key_RPH = state
        mean_RH, states = mean_of(values_RPH, there_RP), []
        for word_RH in self.dropout(self.embed(tokens_RT)).unbind(1):
            h1_RH, c1_RH = self.looking(torch.cat([h2_RH, mean_RH, word_RH], dim=1), (h1_RH, c1_RH))
            score_RP = self.weight((key_RPH + self.query(h1_RH)[:, None]).tanh()).squeeze(2)
            share_RP = score_RP.masked_fill(~there_RP, -torch.inf).softmax(1)
            seen_RH = torch.einsum("rp,rph->rh", share_RP, values_RPH)
            h2_RH, c2_RH = self.saying(torch.cat([seen_RH, h1_RH], dim=1), (h2_RH, c2_RH))
            states.append(h2_RH)
        return self.dropout(torch.stack(states, dim=1)), (h1_RH, c1_RH, h2_RH, c2_RH, key_RPH)


def mean_of(values_RPH: torch.Tensor, there_RP: torch.Tensor) -> torch.Tensor:
    """Averages the vectors R×P×H for which ``there_RP`` is True. Returns R×H."""
    share_RP = there_RP / there_RP.sum(1, keepdim=True)
    return torch.einsum("rp,rph->rh", share_RP.to(values_RPH.dtype), values_RPH)


def regions(visual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the vectors of each picture, B×P×D, and a mask B×P that is True for vectors that are not padding.

    If a picture has one vector, B×D, the vector becomes its only region. The cells of frames, B×F×P×D, are flattened.
    Rows of zeros pad pictures that have fewer regions than other pictures in the batch.
    """
    visual_BPD = visual[:, None] if visual.ndim == 2 else visual.flatten(1, -2)
    there_BP = visual_BPD.ne(0).any(2)
    there_BP[:, 0] |= ~there_BP.any(1)  # a black picture's features may be all zero
    return visual_BPD, there_BP


@dataclass
class LstmState:
    """The state of an LSTM for N rows, and the regions that the LSTM attends to.

    ``first_N1H``: the hidden state after the start token, which `hidden_N1H` computes lazily, so that each caption has
    its own dropout.
    """

    model: RecurrentModel
    state: State
    values_NPH: torch.Tensor
    there_NP: torch.Tensor
    first_N1H: torch.Tensor | None = None

    prompt_tokens: ClassVar = 1  # the start token

    def __len__(self) -> int:
        return len(self.values_NPH)

    @property
    def hidden_N1H(self) -> torch.Tensor:
        if self.first_N1H is None:
            start_N1 = torch.full((len(self), 1), self.model.config.bos_token_id, device=self.values_NPH.device)
            self.first_N1H = self.decode(start_N1)
        return self.first_N1H

    def select(self, row_M: torch.Tensor) -> LstmState:
        first_M1H = None if self.first_N1H is None else self.first_N1H[row_M]
        state = tuple(x[row_M] for x in self.state)
        return LstmState(self.model, state, self.values_NPH[row_M], self.there_NP[row_M], first_M1H)

    def decode(self, tokens_NT: torch.Tensor) -> torch.Tensor:
        """Computes hidden_NTH after each of the new tokens."""
        decoder = self.model.language_model
        hidden_NTH: torch.Tensor
        hidden_NTH, self.state = decoder(tokens_NT, self.state, self.values_NPH, self.there_NP)
        return hidden_NTH


class RecurrentModel(PreTrainedModel):
    """Vision encoder → one linear layer → LSTM. ``config_class`` is `RecurrentConfig`."""

    config_class = RecurrentConfig
    base_model_prefix = "recurrent"
    main_input_name = "input_ids"

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.vision: Any = AutoModel.from_config(config.vision_config) if config.vision_config else None
        self.mapper = nn.Linear(config.visual_size, config.hidden_size)
        self.language_model: Any = (AttentionDecoder if config.attention else PooledDecoder)(config)
        PreTrainedModel.post_init(self)

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Computes picture features: the spatial mean, B×D, or all cells, B×cells×D, if the model has attention."""
        output = self.vision(pixel_values=pixels_BCHW)
        return cells_of(output) if self.config.attention else pooled_of(output)

    def look(self, visual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns values_BPH, the projected regions, and there_BP, the mask of regions that are not padding."""
        visual_BPD, there_BP = regions(visual)
        return self.mapper(visual_BPD), there_BP


class Recurrent(PartsCaptioner):
    """`RecurrentModel` as a captioner. ``visual`` is B×D, or B×P×D: cells, regions, or frames of a clip."""

    sees_clips = True
    pixels_in_threads = True
    masks_regions = True

    @property
    def view(self) -> str:
        return "cells" if self.model.config.attention else "pooled"

    caches = True

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        return hidden_cached(self, self.prefill(visual, tokens_RT.shape[1]), tokens_RT, valid_RT.sum(1))

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> LstmState:
        values_BPH, there_BP = self.model.look(visual)
        return LstmState(self.model, self.model.language_model.start(values_BPH, there_BP), values_BPH, there_BP)

    def decode(self, state: LstmState, tokens_NT: torch.Tensor) -> torch.Tensor:
        return state.decode(tokens_NT)

    @property
    def output_layer(self) -> Any:
        return self.model.language_model.head


AutoConfig.register("recurrent_captioner", RecurrentConfig)
AutoModel.register(RecurrentConfig, RecurrentModel)

CAPTIONERS.register(
    CaptionerEntry(
        name="recurrent_captioner",
        factory=lambda folder: (load_whole(RecurrentModel, folder, dtype=torch.float32), Recurrent),
        help="An LSTM on top of image features, with or without attention.",
        label="LSTM",
        model_type=True,
    )
)
