"""Tables that are kept up to date while a network runs, by Structured Streaming over the traces that it writes."""
