"""Threads and worker processes: where work goes that would hold the event loop up."""
