"""What tests of Overweave and of its extensions need: workloads, builders and conformance checks. Shipped with it."""
