"""Integrations with other libraries: TRL, verl and ms-swift (rewards and bags), and Hugging Face's evaluate."""
