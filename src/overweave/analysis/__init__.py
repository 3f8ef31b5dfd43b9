"""Closed-form analysis of routing (STOCH): what a network will carry, before it is built. Pure: rates in, rates out."""
