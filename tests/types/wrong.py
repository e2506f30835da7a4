"""What a type checker must refuse, each line with what it must say. Read by test_types.py, never run."""

import penstock as ps
from penstock.testing import run_list

flow = ps.Flow("typed")
rows = flow.source("rows", ps.read.items([{"k": 1, "v": 2.0}]))

ps.run(flow, engine="threads")  # error: Unexpected keyword argument "engine"
ps.start(flow, spark=None)  # error: Unexpected keyword argument "spark"
ps.run(flow, tasks=2)  # error: Unexpected keyword argument "tasks"
ps.run(flow, on="threads")  # error: Argument "on" to "run" has incompatible type "str"; expected "On"
ps.run(flow, checkpoint=3)  # error: Argument "checkpoint" to "run" has incompatible type "int"
ps.run("flow")  # error: Argument 1 to "run" has incompatible type "str"; expected "Flow"
ps.run(flow, on_epoch=lambda: None)  # error: Argument "on_epoch" to "run" has incompatible type
ps.Spark(42)  # error: Argument 1 to "Spark" has incompatible type "int"
ps.Spark(tasks="2")  # error: Argument "tasks" to "Spark" has incompatible type "str"
ps.Spark(model="bound")  # error: Unexpected keyword argument "model" for "Spark"
ps.Threads(workers="many")  # error: Argument "workers" to "Threads" has incompatible type
ps.Threads(model="magic")  # error: Argument "model" to "Threads" has incompatible type
ps.Threads(2)  # error: Too many positional arguments for "Threads"
ps.Threads().workers = 3  # error: Property "workers" defined in "Threads" is read-only
rows.key_by("k").scan(lambda state, row: (state, row), 0, nmae="count")  # error: Unexpected keyword argument "nmae"
rows.key_by("k").window(3).sum("v", colour="red")  # error: Unexpected keyword argument "colour" for "sum"
rows >> ps.map(3)  # error: Argument 1 has incompatible type "int"
run_list(rows.sort, [1], slak=2)  # error: Unexpected keyword argument "slak" for "run_list"
