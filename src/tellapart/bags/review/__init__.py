"""Human review of bags: decisions in SQLite, inter-rater agreement, and the curated benchmark."""

from tellapart.bags.review.store import (
    FACETS,
    Conflict,
    Decision,
    DecisionStore,
    ReviewerAgreement,
    agreements,
    bag_key,
    cohen_kappa,
    export_review,
)

__all__ = [
    "FACETS",
    "Conflict",
    "Decision",
    "DecisionStore",
    "ReviewerAgreement",
    "agreements",
    "bag_key",
    "cohen_kappa",
    "export_review",
]
