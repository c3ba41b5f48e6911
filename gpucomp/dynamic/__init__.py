"""The dynamic part of a model: the nodes whose shapes and loop counts depend on values computed in the run."""
