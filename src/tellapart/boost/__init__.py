"""Visual Caption Boosting (paper 2): a data set's captions made dense, and still true."""
