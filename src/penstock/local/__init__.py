"""A whole flow in this process: no JVM, millisecond latency. `engine` has the loop, `ingress` cuts the input."""
