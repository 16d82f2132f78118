"""No test is timed: on a shared machine a deadline of milliseconds tells nothing."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
