"""The Spark engine: an epoch is one Spark job of as many stages as its keyed operators call for.

Read in this order: `stages` (the flow cut in stages), `envelope` (what goes between them), `task` (one task of one
stage), `worker_state` (state inside a task), `parts` (sinks inside a task), `job` (one job an epoch), `anchors` (where
its tasks run), `checkpoint` (what is kept), `engine` (the loop).
"""

from penstock.spark.hadoop import open_hadoop
from penstock.store.remote import OPENERS

OPENERS.update(hdfs=open_hadoop, viewfs=open_hadoop)
