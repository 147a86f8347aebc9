"""Integrations with other libraries: rewards and bags for TRL, rewards for verl and ms-swift, and a metric for evaluate."""
