"""What engines read of a flow: its graph, its plan, where a row's position comes from."""
