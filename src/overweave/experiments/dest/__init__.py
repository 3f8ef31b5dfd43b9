"""DEST: destination-based routing, D-DBR and MERC, next to filter-based routing, all as simulated networks of real brokers."""
