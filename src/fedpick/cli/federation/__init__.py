"""The small federation that ``fedpick federate`` plays: its client, its server, and the processes they run in."""
