"""Decide how many threads, replicas, shards, tasks and cores a flow uses: pure controllers.

`base` says what a controller is, `pilot` runs several by their levers (`levers`: those that need no engine),
`decisions` keeps and replays what they do, `costs` is what work, and a change, is expected to cost. The rest,
by what it decides (what the papers compare with is in `penstock.lab`):

    thread_level         threads of a PE, by trust and trends (`climb`, `search`, `noise`, `keeping_up`)
    climb                rows in flight of an operator that waits, by the climb that threads have, too
    utilization_pool     threads of a pool, by how busy they are
    replicas             replicas of a bottleneck operator
    rebinding            which worker runs an operator
    shard_balance        which task owns a shard
    core_allocation      cores of each executor for a latency target
    epoch_tasks          tasks of a stage on Spark, by what epochs cost
    epoch_rows           rows of an epoch on Spark, for a latency target
    epochs               whether one task will do on Spark, waits and executors
    batch_size           rows of a batch
"""

from penstock.elastic.decisions import replay

__all__ = ["replay"]
