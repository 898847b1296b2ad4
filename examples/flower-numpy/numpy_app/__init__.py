"""A Flower app in NumPy: a straight line through everybody's points."""
