"""Simulate vehicles with SUMO, a microscopic traffic simulator, on a grid that its own tool makes.

SUMO runs as programs of their own, and its floating-car data are read when it is done. It comes with the extra
`traffic`; it is far more exact than `car_following`, and far from 300,000 vehicles.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.csv

from penstock.errors import PenstockError
from penstock.lab.workloads.traffic.trace import LANES, TICK_MS, Frame, Load, active

ROAD = 200
"""Metres from junction to junction."""
VEHICLES_A_ROAD = 8
TRIPS = 4
"""Trips for each vehicle that is to be on the road: each that arrives is replaced by the next one that waits."""
COLUMNS = ("x", "y", "speed", "acceleration", "lane")


def home() -> Path:
    """Return where SUMO is; refuse where it is not installed."""
    found = importlib.util.find_spec("sumo")
    if found is None or not found.submodule_search_locations:
        raise PenstockError("SUMO is not installed; install it with: pip install 'penstock[traffic]'")
    return Path(found.submodule_search_locations[0])


def frames(vehicles: int, ticks: int, load: Load = "constant", seed: int = 1) -> Iterator[Frame]:
    """Simulate, and give what the vehicles emit tick by tick, by their numbers.

    There are at most so many vehicles; they appear as SUMO finds room for them, and leave where they arrive, so that
    after a rush hour there are fewer only as they come to the ends of their trips.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-sumo-") as made:
        folder = Path(made)
        edges = make_network(folder, vehicles, seed)
        make_trips(folder, edges, vehicles, ticks, load, seed)
        table = simulate(folder, vehicles, ticks, seed)
    road = {edge: number for number, edge in enumerate(edges)}
    time = np.rint(table["time"].to_numpy() * 1000).astype(np.int64)
    names = [str(lane).rpartition("_") for lane in table["lane"].to_pylist()]
    lane = np.array([road[edge] * LANES + int(index) for edge, _, index in names], dtype=np.int64)
    number = table["id"].to_numpy()
    order = np.lexsort((number, time))
    for tick in range(ticks):
        low, high = np.searchsorted(time, [tick * TICK_MS, (tick + 1) * TICK_MS]).tolist()
        rows = order[low:high]
        x, y, speed, acceleration = (table[name].to_numpy()[rows] for name in COLUMNS[:-1])
        yield Frame(tick * TICK_MS, number[rows], x, y, speed, acceleration, lane[rows])


def make_network(folder: Path, vehicles: int, seed: int) -> list[str]:
    """Generate a grid with room for the vehicles; return its roads."""
    side = 2
    while 4 * side * (side - 1) * VEHICLES_A_ROAD < vehicles:
        side += 1
    shape = ["--grid", "--grid.number", str(side), "--grid.length", str(ROAD), "--default.lanenumber", "2"]
    # Without links inside junctions every vehicle is on a road at every tick.
    call("netgenerate", *shape, "--no-internal-links", "--seed", str(seed), "-o", str(folder / "net.xml"))
    root = ElementTree.parse(folder / "net.xml").getroot()
    return sorted(edge.attrib["id"] for edge in root.iter("edge") if edge.get("function") != "internal")


def make_trips(folder: Path, edges: list[str], vehicles: int, ticks: int, load: Load, seed: int) -> None:
    """Write trips from road to road, by chance.

    With a constant load there are more trips than vehicles, all from the first tick on: they wait for somebody to
    arrive. In a rush hour each vehicle has one, from when there are so many.
    """
    wanted = [active(load, vehicles, tick, ticks) for tick in range(ticks)]
    departures = np.searchsorted(np.maximum.accumulate(wanted), np.arange(1, vehicles + 1))
    if load == "constant":
        departures = np.zeros(TRIPS * vehicles, dtype=np.int64)
    random = np.random.default_rng(seed)
    routes = ElementTree.Element("routes")
    for number, tick in enumerate(departures[departures < ticks].tolist()):
        begin, end = random.choice(len(edges), 2, replace=False).tolist()
        trip = {"id": str(number), "from": edges[begin], "to": edges[end], "depart": f"{tick * TICK_MS / 1000:.2f}"}
        ElementTree.SubElement(routes, "trip", {**trip, "departPos": "random_free", "departLane": "best"})
    ElementTree.ElementTree(routes).write(folder / "trips.xml")


def simulate(folder: Path, vehicles: int, ticks: int, seed: int) -> pa.Table:
    """Run SUMO; return time, id and what each vehicle emits."""
    output = folder / "fcd.csv"
    call(
        "sumo",
        *("-n", str(folder / "net.xml"), "-r", str(folder / "trips.xml"), "--seed", str(seed)),
        *("--step-length", str(TICK_MS / 1000), "--end", str(ticks * TICK_MS / 1000)),
        *("--max-num-vehicles", str(vehicles), "--ignore-route-errors", "--no-step-log", "--no-warnings"),
        *("--fcd-output", str(output), "--fcd-output.acceleration", "--precision", "3"),
        *("--fcd-output.attributes", ",".join(COLUMNS)),
    )
    table = pyarrow.csv.read_csv(output, parse_options=pyarrow.csv.ParseOptions(delimiter=";"))
    table = table.filter(table["vehicle_id"].is_valid())  # a tick without vehicles is a line without any
    return table.rename_columns(
        [name.removeprefix("timestep_").removeprefix("vehicle_") for name in table.schema.names]
    )


def call(program: str, *arguments: str) -> None:
    """Run one of SUMO's programs; what it says is the error if it fails."""
    where = home()
    command = [str(where / "bin" / program), *arguments]
    done = subprocess.run(
        command, env={**os.environ, "SUMO_HOME": str(where)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise PenstockError(f"SUMO's {program} failed with {done.returncode}: {' / '.join(said[:3])}")
