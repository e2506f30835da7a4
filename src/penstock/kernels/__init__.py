"""What every engine computes in the same way, on columns: for now, how rows come in."""
