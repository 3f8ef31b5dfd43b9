"""The evaluation of MINIMAL (section 6): overlays of as few brokers as boxes need, and what their brokers carry."""
