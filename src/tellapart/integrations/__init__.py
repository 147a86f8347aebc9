"""tellapart inside other libraries. `tellapart.integrations.trl`: rewards and bags for TRL's trainers."""
