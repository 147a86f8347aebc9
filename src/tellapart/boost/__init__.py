"""Visual Caption Boosting (paper 2): makes a data set's captions denser while keeping them true."""
