"""How the simulator gets fast: compiled programs, batches of runs, several hosts, checkpoints. Private."""
