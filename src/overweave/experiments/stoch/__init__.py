"""STOCH: stochastic analysis of identity-based hierarchical routing, against the routing itself."""
