"""Visual Caption Boosting (paper 2): makes captions more detailed, with checks against the references."""
