"""Which split of N devices serves a model best: predicted by simulation from measured stage costs."""
