"""Simulate large machines and clusters in virtual time, steered by the same controllers as the engines.

    events      virtual time
    machine     cores, and what synchronization costs: inputs, with their sources
    graphs      operators with cost, waiting and selectivity, in the papers' shapes
    ports, pe   one processing element: queues, workers, claims, locks, back-pressure, order
    steering    controllers in the loop
    scale       Streams' thousand operators on 176 and 184 cores
    partitioned one partitioned operator on the queues of `order`
    keys        skewed keys that are shuffled
    cluster     one keyed operator on nodes with links: tasks, shards, state
    elasticity  Elasticutor's approaches side by side (`executor_centric` is the one of its own)

It drives the thread level, the pool, replicas, rebinding, rows in flight, batch sizes, shard balance, core allocation
and assignment. There are no epochs here, so the controllers of Spark's (`epoch_model` and those about it) are not
driven.

Nothing here reads a clock; chance comes from seeds, so a run repeats exactly.
"""
