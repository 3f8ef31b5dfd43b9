"""Plans that move few clients: from today's network towards fewer brokers, step by step.

The papers plan from nothing; what it takes to get there is ours. Whoever is at a broker that stays may stay there.
"""
