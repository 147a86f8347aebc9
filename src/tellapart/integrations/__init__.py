"""Integrations with other libraries. `tellapart.integrations.trl` provides rewards and bags for TRL's trainers."""
