"""A broker of Apache Kafka for tests: one process in KRaft mode, on loopback, with a data directory of its own."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.jars import broker_jars

PATIENCE = 120.0
"""Seconds that the broker may take to start: a machine that does a lot else is slow."""

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=100
"""


class Broker:
    """One broker; `address` is what clients are given."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._jars = directory, broker_jars()
        port, controller = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        properties = directory / "server.properties"
        properties.write_text(_PROPERTIES.format(port=port, controller=controller, data=directory / "data"))
        # One that begins with a dash would be an option of the command line.
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        format_it = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(properties)]
        subprocess.run(self._java(*format_it), check=True, capture_output=True, timeout=PATIENCE)
        self._log = open(directory / "log.txt", "w")  # noqa: SIM115
        self._process = subprocess.Popen(
            self._java("kafka.Kafka", str(properties)), stdout=self._log, stderr=subprocess.STDOUT
        )
        self._await()

    def _java(self, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        # A JVM that lives for minutes has no time to optimize.
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
        return [java, *quick, "-cp", f"{self._jars}/*", *arguments]

    def _await(self) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                self.admin.list_topics(timeout=2)
                return
            except Exception:  # not there yet: the client tries again by itself
                continue
        log = (self._directory / "log.txt").read_text()[-2000:]
        self.stop()
        raise RuntimeError(f"Kafka did not start: {log}")

    def stop(self) -> None:
        """End the broker's process."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    @cached_property  # it forgets what it was asked when it goes
    def admin(self) -> Any:
        """Return a client for topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def producer(self, **options: Any) -> Any:
        """Return a client that writes."""
        from confluent_kafka import Producer

        # Otherwise what is sent again may come after what was sent next, and the topic is in another order.
        return Producer({"bootstrap.servers": self.address, "linger.ms": 5, "enable.idempotence": True, **options})

    def create(self, topic: str, partitions: int, **config: str) -> None:
        """Make a topic."""
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(
            topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()}
        )
        for done in self.admin.create_topics([wanted]).values():
            done.result(PATIENCE)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        for done in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            done.result(PATIENCE)

    def write(self, topic: str, messages: Iterable[tuple[int, Any]], *, key: str | None = None) -> None:
        """Write (partition, value) pairs, values as JSON; `key` names the field that is the message's key."""
        producer = self.producer()
        for partition, value in messages:
            named = None if key is None else str(value[key]).encode()
            while True:
                try:
                    producer.produce(topic, json.dumps(value).encode(), named, partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(PATIENCE) == 0

    def read(self, topic: str) -> list[bytes]:
        """Return the values in a topic of one partition."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "tests", "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while True:
            message = consumer.poll(PATIENCE)
            assert message is not None, f"{topic} cannot be read"
            if message.error():  # its end
                consumer.close()
                return found
            found.append(message.value())

    def await_fewer(self, topic: str, count: int) -> list[bytes]:
        """Wait until a topic of one partition is compacted to fewer messages, and no more goes; return them."""
        until = time.monotonic() + PATIENCE
        before = self.read(topic)
        while time.monotonic() < until:
            time.sleep(1)
            now = self.read(topic)
            if len(now) < count and now == before:
                return now
            before = now
        raise AssertionError(f"{topic} was not compacted")


def _free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody uses."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
