"""Drivers: what runs the cores. The only place of input and output, clocks and dice."""
