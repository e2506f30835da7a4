"""What a type checker must refuse, each line with what it must say. Read by test_types.py, never run."""

from dataclasses import dataclass

import penstock as ps
from penstock.testing import run_list


@dataclass
class Payment:
    user: str
    amount: float


def running(total: float, row: Payment) -> tuple[float, Payment]:
    return total + row.amount, row


def of_text(row: str) -> int:
    return len(row)


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

paid = flow.source("paid", ps.read.json("in", schema=Payment))
by_user = paid.key_by("user")
paid.map(lambda row: row.amuont)  # error: "Payment" has no attribute "amuont"; maybe "amount"?
paid.filter(lambda row: row.users == "ann")  # error: "Payment" has no attribute "users"; maybe "user"?
paid.key_by(lambda row: row.name)  # error: "Payment" has no attribute "name"
paid.map(of_text)  # error: Argument 1 to "map" of "Stream" has incompatible type "Callable[[str], int]"
paid.map(lambda row: row.user).map(lambda user: user.amount)  # error: "str" has no attribute "amount"
paid.map(lambda row: {}, schema=Payment).filter(lambda row: row.total)  # error: "Payment" has no attribute "total"
paid.flat_map(lambda row: [row.usr])  # error: "Payment" has no attribute "usr"; maybe "user"?
by_user.scan(running, "nothing")  # error: Cannot infer value of type parameter "StateT" of "scan"
by_user.scan(running, list)  # error: Argument 2 to "scan" of "Stateful" has incompatible type "type[list[
by_user.scan(lambda total, row: (total + row.paid, row), 0.0)  # error: "Payment" has no attribute "paid"
by_user.scan(running, 0.0).map(lambda row: row.total)  # error: "Payment" has no attribute "total"
by_user.reduce(lambda a, b: b.sum)  # error: "Payment" has no attribute "sum"
by_user.window("1 min").apply(lambda window, rows: rows[0].price)  # error: "Payment" has no attribute "price"
paid.split(lambda row: row.x)  # error: "Payment" has no attribute "x"
paid.map(lambda row: row, on_error="skipp")  # error: Argument "on_error" to "map" of "Stream" has incompatible type
by_user.join(by_user, "1 min", how="iner")  # error: Argument "how" to "join" of "KeyedStream" has incompatible type
by_user.join(by_user, "1 min", lambda a, b: b.tax)  # error: "Payment" has no attribute "tax"
flow.source("late", ps.read.csv("in"), on_late="drop")  # error: Argument "on_late" to "source" of "Flow"
by_user.map(lambda row: row)  # error: "KeyedStream[Payment]" has no attribute "map"
