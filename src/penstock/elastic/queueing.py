"""Compute the mean time in M/M/k queues and in a Jackson network of them."""

import math
from collections.abc import Sequence


def stable_minimum(arrivals: float, service: float) -> int:
    """Return the fewest servers that keep a queue finite: floor(lambda / mu) + 1.

    The published ceiling plus one asks for one too many unless lambda / mu is a whole number.
    """
    servers = math.floor(arrivals / service) + 1
    # The quotient is rounded: it may be just below a number of servers that serve no more than what arrives.
    return servers + 1 if arrivals >= servers * service else servers


def erlang_b(load: float, servers: int) -> float:
    """Return the part of arrivals that find all servers busy and leave, for a load of lambda / mu."""
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = load * blocked / (k + load * blocked)
    return blocked


def erlang_c(load: float, servers: int) -> float:
    """Return the part of arrivals that must wait."""
    if load >= servers:
        return 1.0
    blocked = erlang_b(load, servers)
    return servers * blocked / (servers - load * (1 - blocked))


def response_time(arrivals: float, service: float, servers: int) -> float:
    """Return the mean time from arrival to departure; infinite if the servers cannot keep up."""
    if arrivals >= servers * service:
        return math.inf
    return 1 / service + erlang_c(arrivals / service, servers) / (servers * service - arrivals)


def network_time(external: float, arrivals: Sequence[float], service: Sequence[float], servers: Sequence[int]) -> float:
    """Return the mean time that an input of the network causes: the sum of lambda_j T_j over lambda_0."""
    if external <= 0:
        return 0.0
    times = zip(arrivals, service, servers, strict=True)
    return sum(rate * response_time(rate, mu, k) for rate, mu, k in times if rate > 0) / external
