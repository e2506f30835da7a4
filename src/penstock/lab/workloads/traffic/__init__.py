"""Traffic (Rebinding): vehicles that say where they are 25 times a second, and many queries over them.

`trace` says what a row is, `car_following` and `sumo` make them, `queries` are the three queries of the paper, and
`named` is the workload `traffic` of `penstock run`.
"""
