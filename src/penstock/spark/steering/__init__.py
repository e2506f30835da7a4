"""Steer a run on Spark between epochs: each file takes measurements to one kind of controller, and its actions back."""
