"""What drivers, brokers and clients agree on: frames, stimuli, effects, records and configuration. Values only."""
