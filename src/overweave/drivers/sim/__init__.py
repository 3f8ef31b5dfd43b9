"""The simulator: the same cores in modelled time, one seed = one trace."""
