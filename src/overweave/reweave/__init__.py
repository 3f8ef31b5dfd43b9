"""Plans on running networks: the target of a plan, the states that lead there, and a coordinator without memory of its own.

Everything here is pure: observations come in, commands go out. Drivers observe, execute, and keep time.
"""
