"""A Flower app in PyTorch: images of digits or of clothes, dealt out unevenly."""
