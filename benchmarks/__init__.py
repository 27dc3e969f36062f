"""What is run by hand: speed, memory, and trainings that are killed on the way."""
