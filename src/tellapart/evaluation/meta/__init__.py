"""Meta-evaluation: how well metrics agree with people's judgements of captions."""
