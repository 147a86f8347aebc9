"""Captions against the truth of a scene: the public functions of `claim_counts`, `listener` and `scene_graph`."""

from .claim_counts import (
    ClaimCounts,
    MarkedCaption,
    StatedClaim,
    count_claims,
    mark_caption,
    stated_claims,
)
from .claim_rates import caption_rates, corpus_rates
from .listener import listener_accuracy, listener_probabilities
from .parser import Mention, ParsedCaption, parse_caption
from .scene_graph import GraphScore, corpus_scene_graph_f, scene_graph_f

__all__ = [
    "ClaimCounts",
    "GraphScore",
    "MarkedCaption",
    "Mention",
    "ParsedCaption",
    "StatedClaim",
    "caption_rates",
    "corpus_rates",
    "corpus_scene_graph_f",
    "count_claims",
    "listener_accuracy",
    "listener_probabilities",
    "mark_caption",
    "parse_caption",
    "scene_graph_f",
    "stated_claims",
]
