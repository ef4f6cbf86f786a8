"""Consumer groups as their members and their operators see them: who gets which partition, what a group stands at."""
