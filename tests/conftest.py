"""What holds for all tests: examples may take their time, since kernels compile and machines are shared."""

from hypothesis import settings

settings.register_profile("overweave", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("overweave")
