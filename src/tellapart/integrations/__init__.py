"""Integrations with other libraries, such as rewards and bags for TRL's trainers (`tellapart.integrations.trl`)."""
