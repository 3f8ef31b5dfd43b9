"""The broker: a pure object that takes stimuli and answers with effects."""
