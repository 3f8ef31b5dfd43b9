"""Which filters does a publication match, and towards which links must it go."""
