"""Visual Caption Boosting (paper 2): makes a data set's captions more detailed without making them less accurate."""
