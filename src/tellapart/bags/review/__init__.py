"""Human review of bags: decisions in SQLite, inter-rater agreement, and the curated benchmark."""

from tellapart.bags.review.agreement import ReviewerAgreement, agreements, cohen_kappa
from tellapart.bags.review.export import export_review
from tellapart.bags.review.store import FACETS, Conflict, Decision, DecisionStore, bag_key

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
