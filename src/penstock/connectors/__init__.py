"""Where rows come from and go to: sources and sinks as users name them, and how they are read and written."""
