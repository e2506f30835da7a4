"""What is kept: objects with conditional writes, the lease, the log of commits, and what becomes visible of an epoch.

Nothing here knows an engine. `keeper.py` has the protocol in the order in which a driver goes through it.
"""
