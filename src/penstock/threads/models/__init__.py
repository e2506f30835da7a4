"""The ways to share the work out among threads (Streams' threading models, Rebinding's).

*manual*: no thread but the one that brings batches in; it runs every operator. *dedicated*: one thread for each input
port. *dynamic*: any worker runs any operator, found by the scheduler; workers come and go while the flow runs. *bound*:
each operator belongs to one worker, and can be given to another while all of them run on.
"""
