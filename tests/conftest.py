"""What all tests share: how Hypothesis draws."""

from hypothesis import settings

# No deadline: the machine is shared, and the first call into a library takes long. A failure prints the
# line that repeats it.
settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")
