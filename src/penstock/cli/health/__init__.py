"""What `penstock doctor` looks at: the machine, and a run's checkpoint."""
